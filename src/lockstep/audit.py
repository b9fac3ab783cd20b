"""Audit runs: replay steps and compare their receipts, and find where two runs diverge."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.cluster.launch import launch
from lockstep.cluster.program import Program, launch_program
from lockstep.console import Console
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.recipe.source import Source, with_numbers
from lockstep.engine.run import checkpoint as checkpoints
from lockstep.engine.run.atomic_write import replace_file
from lockstep.engine.run.receipts import Receipt, read
from lockstep.engine.run.resume import differences
from lockstep.engine.run.run_folder import RunFolder
from lockstep.errors import FolderError, PlanError

LAST = 10
"""Steps that are replayed if none are named: the last of the run."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of replaying steps of one run."""

    folder: str
    first: int
    last: int
    """The steps that were compared, from `first` to `last`."""
    replayed_from: int
    """The step of the checkpoint that the replay began with; 0 for the beginning."""
    compared: int
    """Receipts that were compared."""
    differs_at: int | None = None
    """The first step whose gradient differs."""
    device: str = "cpu"

    @property
    def equal(self) -> bool:
        """Whether the run could be repeated to the bit."""
        return self.differs_at is None


@dataclass(frozen=True, kw_only=True)
class Parting:
    """The first difference between two runs."""

    steps: int
    """Steps that both runs have."""
    differs_at: int | None = None
    """The first step whose gradients differ; None if there is none."""
    reasons: list[str] = field(default_factory=list)
    """What differs there, in the order in which a step computes it."""

    @property
    def equal(self) -> bool:
        """Whether both runs took the same steps."""
        return self.differs_at is None


def audit_run(
    folder: Path, steps: tuple[int, int] | None, console: Console, recipe: str | None = None
) -> Audit:
    """Replay the steps from `steps[0]` up to, but without, `steps[1]`; compare the receipts.

    `recipe` names the recipe of a run that was started with an object, or whose file has moved.
    """
    summary, receipts = _recorded(folder)
    known = sorted({receipt.step for receipt in receipts})
    first, end = steps or (max(0, known[-1] + 1 - LAST), known[-1] + 1)
    wanted = [receipt for receipt in receipts if first <= receipt.step < end]
    if not wanted:
        raise PlanError(
            f"--steps {first}:{end}: {folder} has receipts of steps {known[0]} to {known[-1]}. "
            f"Give a stretch of them, such as --steps {max(0, known[-1] - 9)}:{known[-1] + 1}."
        )
    console.say(f"Replaying steps {first} to {wanted[-1].step} of {folder} on one replica ...")
    with tempfile.TemporaryDirectory(prefix="lockstep-audit-") as place:
        start, replayed = _replay(folder, summary, first, end, Path(place), recipe=recipe)
    pairs = {receipt.call: receipt for receipt in replayed}
    differs = next((r.step for r in wanted if not _same(r, pairs.get(r.call))), None)
    return Audit(
        folder=str(folder),
        first=first,
        last=wanted[-1].step,
        replayed_from=start,
        compared=len(wanted),
        differs_at=differs,
        device=str(summary.get("machine", {}).get("device", "cpu")),
    )


def compare_runs(one: Path, other: Path, console: Console, recipe: str | None = None) -> Parting:
    """Find the first step in which two runs differ, and what differs there."""
    recorded = [_recorded(folder) for folder in (one, other)]
    lists = [receipts for _, receipts in recorded]
    steps = len({r.step for r in lists[0]} & {r.step for r in lists[1]})
    pairs = zip(*lists, strict=False)
    step = next((a.step for a, b in pairs if not _same(a, b)), None)
    if step is None:
        return Parting(steps=steps)
    console.say(f"The runs diverge at step {step}. Replaying it from both runs ...")
    found = []
    for folder, (summary, receipts) in zip((one, other), recorded, strict=True):
        with tempfile.TemporaryDirectory(prefix="lockstep-audit-") as place:
            _, replayed = _replay(
                folder, summary, step, step + 1, Path(place), detail=step, recipe=recipe
            )
            path = Path(place) / "run" / "details.json"
            # A loss over the whole batch has no shards to look at.
            details = json.loads(path.read_text()) if path.exists() else []
        mine = {r.call: r for r in replayed if r.step == step}
        faithful = all(_same(r, mine.get(r.call)) for r in receipts if r.step == step)
        found.append((folder, details, faithful))
    return Parting(steps=steps, differs_at=step, reasons=_reasons(found))


def _same(a: Receipt, b: Receipt | None) -> bool:
    return b is not None and (a.call, a.gradient) == (b.call, b.gradient)


def _recorded(folder: Path) -> tuple[dict[str, Any], list[Receipt]]:
    """Return the summary and the receipts of a run."""
    summary = RunFolder(folder).summary()
    path = folder / "receipts.bin"
    receipts = read(path) if path.exists() else []
    if not receipts:
        raise FolderError(
            f"{folder} has no receipts to compare. Runs write them in exact mode: train with "
            "--exact, or with exact=True."
        )
    return summary, receipts


def _replay(
    folder: Path,
    summary: dict[str, Any],
    first: int,
    end: int,
    place: Path,
    *,
    recipe: str | None = None,
    detail: int | None = None,
) -> tuple[int, list[Receipt]]:
    """Take the steps of a run again, from the nearest checkpoint; return its step, and receipts."""
    out = place / "run"
    (out / "checkpoints").mkdir(parents=True)
    start = 0
    for path in sorted((folder / "checkpoints").glob("step-*.safetensors"), reverse=True):
        step = int(path.stem.removeprefix("step-"))
        if step <= first:
            checkpoints.read(path)
            shutil.copy(path, out / "checkpoints" / path.name)
            start = step
            break
    if start:
        running = summary | {"status": "interrupted"}
        replace_file(out / "run.json", json.dumps(running).encode())
    else:
        shutil.rmtree(out)
    device = "cpu" if summary["machine"]["device"] == "cpu" else "cuda"
    console, threads = Console(quiet=True), summary["machine"]["threads"]
    if "program" in summary:
        program = _program(folder, summary, out, bool(start), end)
        program.flags["threads"] = threads
        launch_program(replace(program, detail=detail), replicas=1, device=device, console=console)
    else:
        job = Job(
            recipe=_recipe(folder, summary, recipe),
            out=out,
            exact=True,
            threads=threads,
            speed="eager",
            workers=0,
            checkpoint_every=0,
            check_every=0,
            resume=bool(start),
            max_steps=end,
            detail=detail,
        )
        launch(job, device=device, console=console)
    return start, read(out / "receipts.bin")


def _program(folder: Path, summary: dict[str, Any], out: Path, resume: bool, end: int) -> Program:
    """Return the program of a run, to be run again up to a step."""
    if (number := summary["program"].get("loop", 1)) > 1:
        raise FolderError(
            f"{folder} is loop {number} of a program with several, and only the first one can be "
            "replayed: the others need what came before them."
        )
    path = Path(summary["program"]["path"])
    if not path.is_file():
        raise FolderError(
            f"the program of {folder}, {path}, was not found, so lockstep cannot replay it."
        )
    described = summary["recipe"]
    flags = {"max_steps": end, "checkpoint_every": 0, "check_every": 0, "exact": True}
    flags |= {name: described[name] for name in ("seed", "global_batch", "shards", "precision")}
    arguments = summary["program"]["arguments"]
    return Program(path=path, arguments=arguments, out=out, resume=resume, flags=flags)


def _recipe(folder: Path, summary: dict[str, Any], named: str | None) -> Recipe:
    """Return the recipe of a run: as `named`, or as the run was started."""
    source = summary.get("source")
    if named is None and source is None:
        raise FolderError(
            f"{folder} was started with a Recipe object, which its folder does not hold. Name the "
            "recipe: lockstep audit RUN --recipe file.py (or package.module:recipe)."
        )
    if named is not None:
        found = Source(recipe=named)
    else:
        assert source is not None
        found = Source(recipe=source["recipe"], flags=source["flags"])
    with chdir(source["folder"] if source and Path(source["folder"]).is_dir() else "."):
        recipe = with_numbers(found.load_recipe(), summary["recipe"])
    if odd := differences(recipe, summary["recipe"]):
        raise FolderError(f"{folder} holds a run of another recipe: {'; '.join(odd)}.")
    return recipe


def _reasons(found: list[tuple[Path, list[dict[str, Any]], bool]]) -> list[str]:
    """Say what differs in a step, in the order in which it is computed."""
    (one, first, _), (other, second, _) = found
    reasons = [
        f"{folder} cannot be repeated: its replay gives a gradient that differs from the recorded "
        "one. Its device, or code that depends on its rank or on time, is the likely cause."
        for folder, _, faithful in found
        if not faithful
    ]
    for a, b in zip(first, second, strict=False):
        step = f"optimizer {a['optimizer']}"
        if a["groups"] != b["groups"]:
            changed = sorted(
                f"{name} ({left.get(name)} and {right.get(name)})"
                for left, right in zip(a["groups"], b["groups"], strict=False)
                for name in left.keys() | right.keys()
                if left.get(name) != right.get(name)
            )
            reasons.append(f"{step}: its settings differ: {', '.join(changed)}.")
        weights = [n for n in a["weights"] if a["weights"][n] != b["weights"].get(n)]
        if weights:
            reasons.append(
                f"the weights differ before the step, first {weights[0]} ({len(weights)} of "
                f"{len(a['weights'])}): the update of the step before, or code in the loop's body, "
                "made the difference."
            )
        for shard in sorted(a["shards"].keys() & b["shards"].keys(), key=int):
            left, right = a["shards"][shard], b["shards"][shard]
            if left["samples"] != right["samples"]:
                reasons.append(f"{step}, shard {shard}: the samples differ.")
                break
            names = [
                n for n in left["gradients"] if left["gradients"][n] != right["gradients"].get(n)
            ]
            if names and not weights:
                reasons.append(
                    f"{step}, shard {shard}: equal samples and weights give different gradients, "
                    f"first of {names[0]}. The loss or the model differs."
                )
                break
    if not reasons:
        reasons.append(
            f"the replays of {one} and {other} agree: one of the two did not compute what its "
            "program says when it ran."
        )
    return reasons
