"""Measure step times by micro-batch, the noise scale and the exchange, in short runs."""

from __future__ import annotations

import inspect
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset

from lockstep.cluster.launch import launch
from lockstep.console import Console
from lockstep.data import Data, Resident, Tensors
from lockstep.engine.exchange.connect import time_exchange
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import BatchNorm, Recipe, build
from lockstep.errors import PlanError, ReplicaDied
from lockstep.processes.replicas import run_replicas
from lockstep.scaling.batch.advice import Kind
from lockstep.scaling.batch.critical import from_noise
from lockstep.world import World

FEW = 6
"""Steps of a first look at a micro-batch."""
SECONDS = 1.0
"""How long a micro-batch is timed, if its steps are shorter."""
LONG = 5.0
"""Seconds of a step after which larger micro-batches are tried only if they pay."""
PAYS = 1.03
"""The gain in samples per second that makes the next doubling worth a try."""
SMALLEST = 8
"""Samples of the first micro-batch."""
NO_MEMORY = ("OutOfMemory", "out of memory", "can't allocate memory", "MemoryError", "SIGKILL")
"""Words in the error of a replica that ran out of memory."""


@dataclass(frozen=True)
class Noise:
    """The noise scale during a short training."""

    critical_batch: float
    value: float
    low: float
    high: float | None
    """The upper end of the interval; None if it has none."""
    steps: int
    source: str
    curve: list[tuple[int, float]]


@dataclass(frozen=True)
class Sizes:
    """Step times by micro-batch."""

    seconds: dict[int, float]
    memory: dict[int, int]
    """Peak bytes."""
    limit: str
    """Why no larger micro-batch was tried."""


class Probe:
    """Runs short trainings of a recipe in `folder`, and leaves their files there."""

    def __init__(
        self, recipe: Recipe, device: str, options: dict[str, Any], folder: Path, console: Console
    ) -> None:
        # The advice is one batch for the whole run.
        self.recipe = replace(recipe, grow_to=None, grow_from=None)
        self.device, self.options = device, options
        self.folder, self.console = folder, console

    def noise(self, steps: int) -> tuple[Noise, dict[str, Any]]:
        """Train the recipe for `steps` steps on one replica, and measure the noise scale.

        Return it with the summary of that run.
        """
        recipe = replace(self.recipe, data=_untested(self.recipe))
        options = dict(self.options)
        if recipe.batch_norm is not BatchNorm.SYNC and recipe.global_batch % 2 == 0:
            # At least two parts, which are compared with the whole batch.
            shards = max(2, recipe.shards)
            if recipe.global_batch % shards == 0:
                recipe = replace(recipe, shards=shards)
                options["micro_batch"] = recipe.global_batch // shards
        out = self.folder / "noise"
        summary = self._run(recipe, out, options | {"max_steps": steps, "noise": True})
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        curve = [(r["step"], r["noise_scale"]) for r in lines if r.get("noise_scale") is not None]
        found = summary["noise"]
        if found["value"] is None or not curve:
            longer = "--steps" if summary["steps"] >= steps else "--epochs"
            raise PlanError(
                f"the noise scale cannot be estimated from {summary['steps']} steps: the gradients "
                f"are all zero, or drown in noise. Give more {longer}, or look at the loss first."
            )
        noise = Noise(
            critical_batch=from_noise([v for _, v in curve], recipe.global_batch).critical_batch,
            value=found["value"],
            low=found["low"],
            high=found["high"],
            steps=summary["steps"],
            source=found["source"],
            curve=curve,
        )
        return noise, summary

    def sizes(self, most: int) -> Sizes:
        """Time a step for micro-batches of 8, 16, ... up to `most` samples."""
        seconds: dict[int, float] = {}
        memory: dict[int, int] = {}
        for size in _doublings(min(SMALLEST, most), most):
            try:
                seconds[size], memory[size] = self._timed(size)
            except ReplicaDied as error:
                if not seconds or not any(word in str(error) for word in NO_MEMORY):
                    raise
                return Sizes(seconds, memory, f"{size:,} do not fit in memory")
            rates = [samples / seconds[samples] for samples in sorted(seconds)]
            if seconds[size] > LONG and len(rates) > 1 and rates[-1] < PAYS * rates[-2]:
                return Sizes(seconds, memory, f"more than {size:,} gain nothing")
        return Sizes(seconds, memory, "the largest that the advice could need")

    def _timed(self, size: int) -> tuple[float, int]:
        """Return the seconds and peak bytes of a step of `size` samples."""
        recipe = replace(
            self.recipe, data=_untested(self.recipe), global_batch=size, shards=1, warmup=0.0
        )
        steps = FEW
        while True:
            out = self.folder / f"micro-batch-{size}"
            shutil.rmtree(out, ignore_errors=True)
            summary = self._run(recipe, out, self.options | {"max_steps": steps})
            rate = summary["samples_per_second"]
            spent = size / rate if rate else math.inf
            if steps > FEW or spent * FEW >= SECONDS or not rate:
                return spent, summary["peak_memory_bytes"]
            steps = min(2000, math.ceil(SECONDS / spent) + FEW)

    def _run(self, recipe: Recipe, out: Path, options: dict[str, Any]) -> dict[str, Any]:
        job = Job(recipe=recipe, out=out, checkpoint_every=0, **options)
        return launch(job, device=self.device, console=_Silent())

    def exchange(self, replicas: int, elements: int) -> tuple[float, bool]:
        """Return the seconds to add `elements` gradients, and whether backward could continue."""

        def replica(rank: int, store: str) -> tuple[float, bool]:
            torch.set_num_threads(1)
            place = "cpu" if self.device == "cpu" else f"cuda:{rank}"
            world = World(rank=rank, size=replicas, local_rank=rank, device=place)
            group = Group(world, store=store)
            answer = time_exchange(group, elements)
            group.leave()
            return answer

        found: tuple[float, bool] = run_replicas(replicas, replica)
        return found


class _Silent(Console):
    """Prints nothing: the numbers of the short runs are shown together."""

    def __init__(self) -> None:
        super().__init__(as_json=True)

    def say(self, text: str) -> None:
        """Print nothing."""

    def warn(self, text: str) -> None:
        """Print nothing."""


def _doublings(first: int, last: int) -> Iterator[int]:
    size = first
    while size < last:
        yield size
        size *= 2
    yield last


def _untested(recipe: Recipe) -> Callable[[], Data]:
    """Return the recipe's data with few test samples: short runs need no evaluation."""

    def load() -> Data:
        data = build(f"the data of {recipe.name}", recipe.data)
        few = min(8, len(data.test))
        if isinstance(data.test, Resident):
            test: Any = Tensors(*data.test.take(torch.arange(few)))
        else:
            test = Subset(data.test, range(few))
        return replace(data, test=test)

    return load


def optimizer_kind(recipe: Recipe) -> tuple[Kind, tuple[float, float]]:
    """Return how the rate of the recipe's optimizer changes with the batch, and Adam's betas."""
    given: dict[str, Any] = {}
    function: Any = recipe.optimizer
    while isinstance(function, partial):
        given = {**function.keywords, **given}
        function = function.func
    betas = (0.9, 0.999)
    if inspect.isclass(function) and issubclass(function, torch.optim.Adam | torch.optim.AdamW):
        first, second = given.get("betas", betas)
        return "adam", (float(first), float(second))
    if inspect.isclass(function) and issubclass(function, torch.optim.SGD):
        return "sgd", betas
    return "other", betas
