"""Flags that several commands share: one per field of a recipe, and those of a run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lockstep.console import reserved_output
from lockstep.errors import RecipeError
from lockstep.processes.fresh import begin_again_with_fixed_hashes
from lockstep.source.own_loop import is_program

RecipeArgument = Annotated[
    str, typer.Argument(help="A built-in recipe, path/to/file.py, or package.module:recipe.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Margin = Annotated[
    float, typer.Option(help="How much worse the first metric may be and still count as retained.")
]
Flags = dict[str, tuple[type, Any, str]]
"""Type, default and help of each flag."""

_FUNCTION = "a name, name(arguments), or module:function"
_FLAGS: dict[str, tuple[type, str]] = {
    "name": (str, "Name of the run."),
    "model": (str, f"Model: {_FUNCTION}. E.g. 'wideresnet(16, 2)'."),
    "data": (str, f"Data: {_FUNCTION}. E.g. 'fashion-mnist(samples=10000)'."),
    "loss": (str, f"Loss, one value per item: {_FUNCTION}."),
    "metrics": (str, f"Metrics, separated by ';': {_FUNCTION}."),
    "optimizer": (str, f"Optimizer: {_FUNCTION}. E.g. 'adamw(weight_decay=0.1)'."),
    "learning_rate": (float, "Peak learning rate, for this global batch."),
    "schedule": (str, f"Learning-rate schedule: {_FUNCTION}."),
    "warmup": (float, "Epochs during which the rate rises from --warmup-start to its peak."),
    "warmup_start": (float, "Share of the peak rate at the start of the warmup, 0 to 1."),
    "global_batch": (int, "Samples per optimizer step, over all replicas."),
    "grow_to": (str, "Let the global batch grow with the noise scale up to this size, or 'none'."),
    "grow_from": (str, "Smallest global batch with --grow-to, or 'none'."),
    "shards": (int, "Number of slices of the global batch, a power of two."),
    "epochs": (int, "Passes over the training data."),
    "precision": (str, "fp32, tf32, bf16, fp16 or pure-bf16."),
    "seed": (int, "Seed of weights, order, augmentation and dropout."),
    "augment": (str, f"Augmentation, separated by ';', or 'none': {_FUNCTION}."),
    "batch_norm": (str, "Compute statistics per 'shard', or 'sync' them over the global batch."),
    "clip": (str, "Largest norm of the whole gradient, or 'none'."),
    "target": (str, "Value that the first metric should reach, or 'none'."),
    "channels_last": (bool, "Keep images and convolutions in channels_last order."),
    "evaluation_batch": (int, "Samples evaluated at once. Default: four shards, up to 1,024."),
    "may_change": (
        str,
        "Variables that exact mode lets change, because only a log uses them; separate them by "
        "commas.",
    ),
    "lower_is_better": (bool, "Whether a smaller first metric is better."),
}
_RUN: Flags = {
    "device": (str, "auto", "auto, cpu or cuda."),
    "micro_batch": (int, None, "Samples that pass through the model at once (fast mode)."),
    "speed": (str, "auto", "How to execute steps: auto, eager, compile or graph."),
    "threads": (int, 1, "CPU threads per replica."),
    "workers": (int, 2, "Processes that read data, per replica."),
    "resident": (bool, None, "Keep the data on the device. Default: if they fit."),
    "max_steps": (int, None, "Stop after this many steps."),
    "timeout": (float, 600.0, "Seconds that a replica waits for the others before it gives up."),
    "wire": (str, "fp32", "Format of exchanged gradients: fp32, bf16, or powersgd for slow links."),
    "bucket_mb": (float, None, "MiB of gradients exchanged at once. Default: chosen for the link."),
    "share_gpu": (bool, False, "Let all replicas share one GPU over gloo, for tests."),
}


def with_recipe_flags(
    command: Callable[..., None],
    own: Flags | None = None,
    program: Callable[..., None] | None = None,
) -> Callable[..., None]:
    """Add the shared flags to `command`, and pass it the changed `recipe` and the `run` options.

    `own` are flags that only this command has, beside those in its signature. A file without a
    recipe goes to `program`, with the flags that were typed and the arguments after `--`.
    """

    @functools.wraps(command)
    def wrapped(recipe: str, context: typer.Context, **given: Any) -> None:
        if program is not None and is_program(recipe):
            # Before output is redirected and torch imported.
            begin_again_with_fixed_hashes()
            typed = {n: v for n, v in given.items() if _is_typed(context, n)}
            with reserved_output(given["json"]):
                program(Path(recipe), typed, context.args)
            return
        if context.args:
            raise RecipeError(
                f"unexpected: {' '.join(context.args)}. Only a program with a lockstep.Loop takes "
                "arguments of its own."
            )

        if recipe.endswith(".py") or ":" in recipe:
            # A recipe may number the words of a set, whose order follows the hashes of strings.
            begin_again_with_fixed_hashes()

        from lockstep.engine.recipe.source import Source

        overrides = {n: v for n in _FLAGS if (v := given.pop(n)) is not None}
        run = {n: given.pop(n) for n in _RUN}
        if run["device"] not in ("auto", "cpu", "cuda"):
            raise RecipeError(f"--device {run['device']}: known are auto, cpu and cuda.")
        with reserved_output(given["json"]):
            run["source"] = source = Source(recipe=recipe, flags=overrides)
            command(source.load_recipe(), run=run, **given)

    given = inspect.signature(command).parameters
    taken = [p for n, p in given.items() if n not in ("recipe", "run") and p.kind != p.VAR_KEYWORD]
    parameters = [_parameter("recipe", RecipeArgument, inspect.Parameter.empty)]
    parameters.append(_parameter("context", typer.Context, inspect.Parameter.empty))
    parameters += [_flag(name, *flag) for name, flag in (own or {}).items()] + taken
    for name, (kind, text) in _FLAGS.items():
        parameters.append(_flag(name, kind, None, text, "Recipe"))
    parameters += [_flag(name, *flag, "Run") for name, flag in _RUN.items()]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _flag(
    name: str, kind: type, default: Any, text: str, panel: str | None = None
) -> inspect.Parameter:
    shown = default is not None
    # A command's own switches have no --no-NAME beside them.
    names = [f"--{name}"] if kind is bool and panel is None else []
    option = typer.Option(*names, help=text, rich_help_panel=panel, show_default=shown)
    return _parameter(name, Annotated[kind if shown else kind | None, option], default)


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
