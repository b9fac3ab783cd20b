"""Train a recipe and return the run: what `lockstep.train` and `lockstep train` do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, get_args

from torch import Tensor, nn

from lockstep.cluster.launch import choose, launch
from lockstep.cluster.program import Program, launch_program
from lockstep.console import Console
from lockstep.engine.program import loop as program_loop
from lockstep.engine.program.given import folder_of
from lockstep.engine.recipe.job import Job, SpeedName
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.recipe.resolve import find_recipe
from lockstep.engine.recipe.source import Source
from lockstep.engine.run.open_loggers import Chosen
from lockstep.engine.run.run_folder import RunFolder, copy_weights, new_folder
from lockstep.errors import FolderError, PlanError, RunError
from lockstep.processes.safe_fork import reason_not_to_fork
from lockstep.report.run import write_run_report
from lockstep.world import launched

Device = Literal["auto", "cpu", "cuda"]
Model = TypeVar("Model", bound=nn.Module)


class Options(TypedDict, total=False):
    """How to compute a run. These keyword arguments of `train` seldom need to change."""

    micro_batch: int | None
    """Samples that go through the model together (fast mode); default: all of a replica's."""
    threads: int
    """CPU threads of each replica; default: 1. They change the last bits."""
    speed: SpeedName
    """How steps are executed: `eager`, `compile`, `graph`, or `auto` for the fastest of them."""
    workers: int
    """Processes that read data for each replica, if the data do not live on the device."""
    resident: bool | None
    """Whether the data live on the device; default: if they fit."""
    checkpoint_every: int | None
    """Steps between checkpoints; default: one after each epoch; 0: none."""
    keep: int
    """How many checkpoints to keep."""
    max_steps: int | None
    """Stop after this many steps; the schedule stays that of the whole run."""
    wire: str
    """What carries gradients in fast mode: `fp32`, `bf16`, or `powersgd` for thin links."""
    bucket_mb: float | None
    """Mebibytes of gradients exchanged at once; default: from the measured link."""
    check_every: int
    """In exact mode, steps between two checks that compute a shard again, on average; 0: none."""
    noise: bool
    """Measure the gradient noise scale while training."""
    timeline: bool
    """Measure the fifteen parts of a step."""
    timeout: float
    """Seconds after which a replica stops waiting for the others."""
    share_gpu: bool
    """Let all replicas use one GPU, over gloo: for tests, not for speed."""
    loggers: Chosen
    """`csv`, `tensorboard`, `mlflow`, `wandb`, or functions that get each line of metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run and its folder."""

    folder: Path
    """The folder with run.json, metrics.jsonl, weights.safetensors, checkpoints and report."""
    replicas: int
    """How many replicas trained."""
    exact: bool
    """Whether the run used exact mode."""
    steps: int
    """Optimizer steps."""
    epochs: float
    """Passes over the training data."""
    seconds: float
    """Duration of the run, with evaluations and checkpoints."""
    samples_per_second: float | None
    """Training speed without the first steps; None if the run was too short to measure it."""
    metrics: Mapping[str, float]
    """The recipe's metrics and `test_loss`, measured on the test data after the last step."""
    seconds_to_target: float | None
    """Time until the recipe's target; None if the run did not reach it or had none."""
    weights_sha256: str
    """SHA-256 of weights.safetensors. Two runs with equal weights have equal hashes."""
    summary: Mapping[str, Any] = field(repr=False)
    """Everything that run.json holds."""

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a finished run from its folder."""
        folder = Path(folder)
        if not (folder / "run.json").is_file():
            raise FolderError(f"{folder} holds no run: it has no run.json.")
        return cls._from(folder, RunFolder(folder).summary())

    @classmethod
    def _from(cls, folder: Path, summary: Mapping[str, Any]) -> Self:
        status = summary.get("status")
        if status not in ("finished", None):
            raise FolderError(
                f"{folder} holds a run that is not finished ({status}). Continue it "
                "with lockstep.train(..., resume=True), or with lockstep train --resume."
            )
        own = [name for name in cls.__dataclass_fields__ if name not in ("folder", "summary")]
        if missing := {"status", *own} - summary.keys():
            raise FolderError(
                f"{folder}/run.json has no {', '.join(sorted(missing))}: it is damaged, or another "
                "version of lockstep wrote it."
            )
        return cls(folder=folder, summary=summary, **{name: summary[name] for name in own})

    @property
    def report(self) -> Path:
        """The page that shows the run."""
        return self.folder / "report.html"

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl: what the run logged, in order."""
        return RunFolder(self.folder).metrics()

    def weights(self) -> dict[str, Tensor]:
        """Return the trained weights and buffers by name, on the CPU.

        A tensor that the model holds under several names appears under the first of them.
        """
        from safetensors.torch import load_file

        return load_file(self.folder / "weights.safetensors")

    def load_weights(self, model: Model) -> Model:
        """Copy the trained weights into `model`, built as the recipe builds it; return `model`."""
        copy_weights(self.folder / "weights.safetensors", model)
        return model


class Loop(program_loop.Loop):
    """Joins the replicas that it finds, hands out global batches, and takes steps over them.

    The program is the same for one process, for torchrun, and for `lockstep train FILE`:

    ```python
    with lockstep.Loop(global_batch=64, exact=True) as loop:
        model = loop.model(Net())
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=3e-4))
        batches = loop.batches(data, collate=collate)

        def loss(batch):
            scores = model(batch["tokens"])
            return cross_entropy(scores, batch["labels"], reduction="sum"), len(scores)

        for epoch in loop.epochs(3):
            for batch in batches:
                loop.step(batch, loss, optimizer)
    ```
    """

    def _write_report(self) -> None:
        write_run_report(self.folder)


def train(
    recipe: Recipe | str,
    *,
    replicas: int | None = None,
    exact: bool = False,
    out: str | Path | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    device: Device = "auto",
    resume: bool = False,
    max_restarts: int = 0,
    quiet: bool = False,
    **options: Unpack[Options],
) -> Run:
    """Train a recipe on `replicas` processes and return the run.

    In a plain script, this function forks the replicas: call it before the script starts threads,
    uses a GPU, or (with `threads` above 1) computes with torch. In a script that torchrun started,
    each process becomes one replica; leave `replicas` out, name `out`, and every process gets the
    run. Error messages name the flags of `lockstep train`, which are spelled like these arguments.

    Args:
        recipe: A recipe, or what `lockstep train` takes: the name of a built-in recipe, the path of
            a file that defines `recipe`, or `package.module:recipe`.
        replicas: Processes, each with one device; default: one for each GPU, or one on the CPU.
        exact: Compute the same bits on any number of replicas.
        out: The run's folder, new or empty; default: `runs/RECIPE-TIME`.
        seed: Replaces the recipe's seed.
        epochs: Replaces the recipe's epochs. Change other fields with `dataclasses.replace`.
        device: `auto` takes the GPUs if there are any.
        resume: Continue the run in `out` at its next sample.
        max_restarts: How often to restart from the last checkpoint when a replica dies.
        quiet: Print nothing.
        options: More about how to compute the run; see `Options`.

    Raises:
        UsageError: The request cannot work; the message says what to change.
        RunError: The run started and did not end well.
    """
    if device not in get_args(Device):
        raise PlanError(f"device is {device!r}; known: {', '.join(get_args(Device))}.")
    source = Source(recipe=recipe) if isinstance(recipe, str) else None
    found = recipe if isinstance(recipe, Recipe) else find_recipe(recipe)
    found = replace(
        found,
        seed=found.seed if seed is None else seed,
        epochs=found.epochs if epochs is None else epochs,
    )
    if launched() is None:
        reason = reason_not_to_fork(options.get("threads", 1))
        if reason is not None:
            raise PlanError(
                f"lockstep.train cannot fork its replicas: {reason}. Call it earlier in the "
                "script, start the script with torchrun, or use the command lockstep train."
            )
    return train_here(
        found,
        Console(quiet=quiet),
        replicas=replicas,
        exact=exact,
        out=None if out is None else Path(out),
        device=device,
        resume=resume,
        max_restarts=max_restarts,
        source=source,
        **options,
    )


def train_here(
    recipe: Recipe,
    console: Console,
    *,
    replicas: int | None,
    exact: bool,
    out: Path | None,
    device: str,
    resume: bool,
    max_restarts: int,
    source: Source | None = None,
    **options: Unpack[Options],
) -> Run:
    """Train `recipe`, write its report, and return the run; progress goes to `console`."""
    joined = launched()
    if resume and out is None:
        raise PlanError("--resume needs --out, the folder of the run to continue.")
    if out is None and joined is not None:
        raise PlanError("under torchrun, name the run's folder with --out: all processes share it.")
    kind, replicas = choose(device, replicas, options.get("share_gpu", False))
    job = Job(
        recipe=recipe,
        out=out or Path("runs"),
        replicas=replicas,
        exact=exact,
        resume=resume,
        source=source,
        **options,
    )
    if out is None:
        job = replace(job, out=new_folder(Path("runs"), recipe.name))
    writes = joined is None or joined[0] == 0
    try:
        summary = launch(job, device=kind, console=console, max_restarts=max_restarts)
    except RunError:
        # A run that failed has results to show, too.
        if writes and (job.out / "run.json").exists():
            write_run_report(job.out)
        raise
    if writes:
        write_run_report(job.out)
    return Run._from(job.out, summary)


def train_program(
    path: Path,
    arguments: list[str],
    console: Console,
    *,
    flags: dict[str, Any],
    replicas: int | None = None,
    out: Path | None = None,
    resume: bool = False,
    max_restarts: int = 0,
    share_gpu: bool = False,
) -> Run:
    """Run a program with a `lockstep.Loop`, write its report, and return the run."""
    if resume and out is None:
        raise PlanError("--resume needs --out, the folder of the run to continue.")
    joined = launched()
    if out is None and joined is not None:
        raise PlanError("under torchrun, name the run's folder with --out: all processes share it.")
    kind, replicas = choose(flags.pop("device", "auto"), replicas, share_gpu)
    program = Program(
        path=path,
        arguments=arguments,
        out=out or new_folder(Path("runs"), path.stem),
        resume=resume,
        share_gpu=share_gpu,
        flags=flags,
    )
    writes = joined is None or joined[0] == 0
    try:
        summary = launch_program(
            program, replicas=replicas, device=kind, console=console, max_restarts=max_restarts
        )
    except RunError:
        if writes:
            _report_loops(program.out)
        raise
    if writes:
        _report_loops(program.out)
    return Run._from(folder_of(program.out, summary["loops"] - 1), summary)


def _report_loops(out: Path) -> None:
    """Write the report of each loop of a program that has begun."""
    for number in count():
        folder = folder_of(out, number)
        if not (folder / "run.json").exists():
            return
        write_run_report(folder)
