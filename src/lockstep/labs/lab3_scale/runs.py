"""Measure accuracy against time: whole runs of one recipe on one replica and on several."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from torch.optim import SGD

from lockstep import models
from lockstep.cluster.launch import launch
from lockstep.console import Console
from lockstep.engine.recipe.builtin import DIGITS
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.run.comparison import largest_difference
from lockstep.errors import NotFinite
from lockstep.labs.lab3_scale.throughput import sizes_here
from lockstep.labs.shared.apart import Report, separate
from lockstep.labs.shared.drawing import COLOURS, Figure, axes, line
from lockstep.report.page import GREY
from lockstep.scaling.rates.rules import linear_rule, sqrt_rule
from lockstep.scaling.rates.schedules import constant

BATCH, TIMES, RATE, EPOCHS, WARMUP = 32, 8, 0.05, 6, 2
SHARDS = 4
"""The largest number of replicas of a run."""
EXACT_STEPS = 8
BASE = replace(
    DIGITS,
    model=partial(models.wideresnet, 10, 1, channels=1),
    augment=(),
    optimizer=partial(SGD, momentum=0.9),
    schedule=constant,
    warmup=0.0,
    learning_rate=RATE,
    global_batch=BATCH,
    shards=SHARDS,
    epochs=EPOCHS,
)
# Eager: compiling takes longer than the run.
_job = partial(Job, checkpoint_every=0, speed="eager")
AXES = {"seconds": "seconds of training", "epochs": "epochs", "steps": "optimizer steps"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run and its curve."""

    name: str
    short: str
    """The name in the legend."""
    steps: list[int]
    seconds: list[float]
    """The seconds of training and evaluation, without the start-up."""
    accuracy: list[float]
    """The accuracy after each epoch."""
    diverged: bool
    """Whether the loss became NaN, which ended the run."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs, and whether one replica and several compute the same."""

    device: str
    replicas: int
    runs: list[dict[str, Any]]
    """The fields of each `Run`."""
    difference: float
    """The largest difference of any weight between one replica and several, at the same batch."""
    identical: bool
    """Whether a few steps in exact mode give both the same bits."""

    def each(self) -> list[Run]:
        """Return the runs."""
        return [Run(**run) for run in self.runs]


def planned(many: int) -> dict[str, tuple[int, Recipe]]:
    """Return the replicas and the recipe of each run, by its short name."""
    large = replace(BASE, global_batch=TIMES * BATCH)

    def scaled(rule: Callable[[float], float], **more: Any) -> tuple[int, Recipe]:
        return many, replace(large, learning_rate=RATE * rule(TIMES), **more)

    # The rise begins at the rate of the small batch.
    warmed = {"warmup": float(WARMUP), "warmup_start": 1 / TIMES}
    return {
        "one replica": (1, BASE),
        "same batch": (many, BASE),
        "rate unscaled": (many, large),
        "square root": scaled(sqrt_rule),
        "linear": scaled(linear_rule),
        "linear, warmup": scaled(linear_rule, **warmed),
    }


@separate()
def measure(report: Report, epochs: int = EPOCHS, count: int | None = None) -> Runs:
    """Train all runs in turn, or only the first `count`."""
    device, sizes = sizes_here()
    many = min(sizes[-1], SHARDS)
    plans = dict(islice(planned(many).items(), count))
    runs = []
    with tempfile.TemporaryDirectory(prefix="lockstep-") as place:
        folders = [Path(place) / str(number) for number in range(len(plans))]
        for number, (name, (replicas, recipe)) in enumerate(plans.items()):
            report(0.9 * number / len(plans), name)
            recipe = replace(recipe, epochs=epochs, warmup=min(recipe.warmup, epochs))
            runs.append(_run(name, recipe, replicas, device, folders[number]))
        difference = largest_difference(folders[0], folders[1])
        report(0.95, "exact mode")
        digests = {_digest(n, device, Path(place) / f"exact-{n}") for n in (1, many)}
    return Runs(
        device=device,
        replicas=many,
        runs=[asdict(run) for run in runs],
        difference=difference,
        identical=len(digests) == 1,
    )


def _run(name: str, recipe: Recipe, replicas: int, device: str, folder: Path) -> Run:
    job = _job(recipe=recipe, out=folder, replicas=replicas)
    finished = False
    with suppress(NotFinite):
        finished = bool(launch(job, device=device, console=_Silent()))
    size = "1 replica" if replicas == 1 else f"{replicas} replicas"
    rule = f", {name}" if recipe.global_batch > BATCH else ""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    tests = [line for line in lines if line["kind"] == "test"]
    return Run(
        name=f"{size}, batch {recipe.global_batch}{rule}",
        short=name,
        steps=[t["step"] for t in tests],
        seconds=[round(t["seconds"], 4) for t in tests],
        accuracy=[round(t["accuracy"], 4) for t in tests],
        diverged=not finished,
    )


def _digest(replicas: int, device: str, folder: Path) -> str:
    """Return the digest of the weights after a few steps in exact mode."""
    job = _job(recipe=BASE, out=folder, replicas=replicas, exact=True, max_steps=EXACT_STEPS)
    return str(launch(job, device=device, console=_Silent())["weights_sha256"])


class _Silent(Console):
    """A console that prints nothing: the page shows the progress."""

    def __init__(self) -> None:
        super().__init__(as_json=True)

    def say(self, text: str) -> None:
        """Print nothing."""

    def warn(self, text: str) -> None:
        """Print nothing."""


def reached(run: Run, target: float) -> int | None:
    """Return the index of the first evaluation that reaches the target."""
    return next((n for n, value in enumerate(run.accuracy) if value >= target), None)


def figure(found: Runs, *, axis: str, target: float, **shown: bool) -> Figure:
    """Draw the runs that are `shown` (`run0`, `run1`, ...), and the target."""
    data = []
    said = []
    furthest = 0.0
    for number, run in enumerate(found.each()):
        epochs = range(1, len(run.accuracy) + 1)
        x = list(map(float, {"seconds": run.seconds, "epochs": epochs, "steps": run.steps}[axis]))
        furthest = max(furthest, *x)
        if not shown.get(f"run{number}", True):
            continue
        curve = line(run.short, x, run.accuracy, COLOURS[number])
        data.append(curve | {"mode": "lines+markers", "marker": {"size": 7}})
        first = reached(run, target)
        when = "never" if first is None else f"{x[first]:.3g}"
        ended = " (its loss became NaN)" if run.diverged else ""
        said.append(f"{run.short}: {when}{ended}")
    data.append(line(f"target {target:g}", [0.0, furthest], [target] * 2, GREY, dash="dash"))
    layout = axes(AXES[axis], "test accuracy", y_axis={"range": [0.0, 1.02]})
    note = f"{AXES[axis].capitalize()} until {target:g}:\n" + "\n".join(said)
    return {"data": data, "layout": layout, "note": note}
