"""Measure the fifteen parts of a training step on one replica and on several."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import nn

from lockstep import models
from lockstep.cluster.launch import replica
from lockstep.console import Progress
from lockstep.data import Data, Tensors, digits
from lockstep.engine.recipe.builtin import DIGITS
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.timeline import EXCHANGE, PARTS, layers_of
from lockstep.labs.shared.apart import Report, separate
from lockstep.processes.replicas import run_replicas
from lockstep.world import World, gpu_count

LOCAL_BATCH = 64
COUNTS = (1, 2, 4, 8)
STEPS = 14
COMPUTE = PARTS[5:12]
"""Forward, loss and backward."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The measured steps. Times are milliseconds since the start of the first replica."""

    device: str
    model: str
    local_batch: int
    """The samples of each replica, whatever the number of replicas."""
    gradients: list[int]
    """The bytes of the gradients of layers 3, 2 and 1, in the order of the backward pass."""
    exchange_ms: float | None
    """The exchange of all gradients on two replicas, without waiting for the slower one."""
    runs: list[dict[str, Any]]
    """One entry per number of `replicas`, with lists by replica: the mean `step` and its `parts`;
    `lanes`, the spans [part, start, end] of two steps and those `beside` them; `pace`, how much
    slower than the average the replica computed in each step."""

    def run(self, replicas: int) -> dict[str, Any] | None:
        """Return the run on this number of replicas, if there is one."""
        return next((run for run in self.runs if run["replicas"] == replicas), None)


@separate()
def measure(report: Report) -> Steps:
    """Train on one, two, four and eight GPUs if available, otherwise on one and two CPU cores."""
    gpus = gpu_count()
    counts = [n for n in COUNTS if n <= gpus] if gpus > 1 else [1, 2]
    runs, exchange = [], None
    for place, count in enumerate(counts):
        report(place / len(counts), f"{count} replica{'s' if count > 1 else ''}")
        timelines = _train(count, on_gpus=gpus > 1)
        runs.append(described(count, timelines, on_gpus=gpus > 1))
        exchange = exchange or _exchange(timelines)
    return Steps(
        device="cuda" if gpus > 1 else "cpu",
        model="WideResNet-10-1 on digits",
        local_batch=LOCAL_BATCH,
        gradients=by_thirds(_recipe(1).model()),
        exchange_ms=exchange,
        runs=runs,
    )


def _recipe(replicas: int) -> Recipe:
    return replace(
        DIGITS,
        model=partial(models.wideresnet, depth=10, width=1, channels=1),
        data=_data,
        global_batch=LOCAL_BATCH * replicas,
        shards=max(4, replicas),
    )


def _data() -> Data:
    """Return repeated digits and a tiny test set, because each epoch ends with an evaluation."""
    full = digits()
    again = torch.arange(2 * STEPS * LOCAL_BATCH * COUNTS[-1]) % len(full.train)
    return replace(
        full,
        train=Tensors(*full.train.take(again)),
        test=Tensors(full.test.inputs[:8], full.test.targets[:8]),
    )


def _train(replicas: int, *, on_gpus: bool) -> list[dict[str, Any]]:
    """Train, and return the engine's timelines of all replicas."""
    with tempfile.TemporaryDirectory(prefix="lockstep-lab-") as folder:
        job = Job(
            recipe=_recipe(replicas),
            out=Path(folder) / "run",
            replicas=replicas,
            speed="eager",
            # Not from memory, so that the step reads, moves and waits for its data.
            resident=False,
            workers=1,
            max_steps=STEPS,
            checkpoint_every=0,
            timeline=True,
        )

        def work(rank: int, store: str) -> dict[str, Any]:
            place = f"cuda:{rank}" if on_gpus else "cpu"
            world = World(rank=rank, size=replicas, local_rank=rank, device=place)
            return replica(job, world, store, Progress())

        found: list[dict[str, Any]] = run_replicas(replicas, work)["timeline"]
        return found


def described(replicas: int, timelines: Sequence[dict[str, Any]], *, on_gpus: bool) -> Any:
    """Return a run in the form that the page keeps."""
    # The last step of a run includes the evaluation.
    details = [one["detail"][:-1] for one in timelines]
    zeros = _zeros(details, on_gpus=on_gpus)
    lanes = []
    for one, zero in zip(timelines, zeros, strict=True):
        *steps, last = one["detail"]
        beside = [span for step in (*steps, last) for span in step["beside"]]
        if on_gpus:
            # Data workers use a different clock.
            beside = [span for span in beside if span[0] == EXCHANGE]
        end = max(span[2] for span in steps[-1]["step"])
        lanes.append(
            {
                "step": _shifted([span for step in steps for span in step["step"]], zero),
                "beside": _shifted([s for s in beside if s[1] < end], zero),
            }
        )
    taken = [[sum(e - s for p, s, e in st["step"] if p in COMPUTE) for st in d] for d in details]
    usual = fmean(chain.from_iterable(taken))
    pace = [[round(seconds / usual, 4) for seconds in one] for one in taken]
    parts = [{name: round(ms, 4) for name, ms in one["parts"].items()} for one in timelines]
    step = [round(one["step"], 4) for one in timelines]
    return {"replicas": replicas, "step": step, "parts": parts, "lanes": lanes, "pace": pace}


def _zeros(details: Sequence[Sequence[dict[str, Any]]], *, on_gpus: bool) -> list[float]:
    """Return the start of the first replica's first step, on the clock of each replica."""
    starts = [float(steps[0]["step"][0][1]) for steps in details]
    if not on_gpus:
        return [min(starts)] * len(starts)
    # Each GPU has its own clock, but an all-reduce ends on all of them at once.
    ends = [
        max((float(s[2]) for s in steps[0]["beside"] if s[0] == EXCHANGE), default=start)
        for steps, start in zip(details, starts, strict=True)
    ]
    earliest = max(end - start for end, start in zip(ends, starts, strict=True))
    return [end - earliest for end in ends]


def _shifted(spans: Sequence[Sequence[Any]], zero: float) -> list[list[Any]]:
    return [[p, round(1e3 * (s - zero), 3), round(1e3 * (e - zero), 3)] for p, s, e in spans]


def _exchange(timelines: Sequence[dict[str, Any]]) -> float | None:
    """Return the milliseconds of an exchange on the last replica, which does not have to wait."""
    times = []
    for steps in zip(*(one["detail"] for one in timelines), strict=True):
        each = [sum(e - s for p, s, e in step["beside"] if p == EXCHANGE) for step in steps]
        times.append(1e3 * min(each))
    return round(median(times), 4) if len(timelines) > 1 else None


def by_thirds(model: nn.Module) -> list[int]:
    """Return the bytes of the parameters in the last, second and first third of the layers."""
    layers = list(layers_of(model))
    cuts = [0, len(layers) // 3, 2 * len(layers) // 3, len(layers)]
    thirds = [layers[cuts[n] : cuts[n + 1]] for n in (2, 1, 0)]
    return [sum(p.nbytes for layer in third for p in layer.parameters()) for third in thirds]
