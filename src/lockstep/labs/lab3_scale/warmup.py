"""Divergence and warmup: rates at the edge, with a rise from the rate of one replica or without."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy
import torch

from lockstep.labs.lab3_scale.digits import digits
from lockstep.labs.lab3_scale.model_stack import Stack
from lockstep.labs.lab3_scale.rate_grid import SIZES, plain
from lockstep.labs.lab3_scale.training import Momentum, epochs_of, train
from lockstep.labs.shared.apart import Report
from lockstep.scaling.rates.schedules import Schedule, constant, warmed

EACH = 16
"""Samples of one replica in a step: the global batch grows with the replicas."""
REPLICAS = (2, 4, 8)
RATES = tuple(2 ** (n / 4) for n in range(-1, 6))
WARMUPS = (0, 1, 2, 4, 6)
EPOCHS, SEEDS = 8, 4
LOOKS = 2
"""In an epoch."""


@dataclass(frozen=True, kw_only=True)
class Warmups:
    """Accuracy along every training."""

    each: int
    """Samples of one replica in a step."""
    replicas: list[int]
    rates: list[float]
    """At the end of the warmup, for all replicas together."""
    warmups: list[int]
    """Epochs."""
    epochs: list[list[float]]
    """Of the looks, by replicas."""
    accuracy: list[Any]
    """By replicas, look, rate, warmup, seed; None: the scores were no numbers."""

    @cached_property
    def curves(self) -> list[numpy.ndarray]:
        """Arrays by replicas; what has no number counts as 0."""
        return [numpy.nan_to_num(numpy.array(one, float), nan=0.0) for one in self.accuracy]

    def ends(self, replicas: int) -> numpy.ndarray:
        """[rates, warmups, seeds] after the last epoch."""
        end: numpy.ndarray = self.curves[self.replicas.index(replicas)][-1]
        return end


class Found(NamedTuple):
    """A rate that fails without a warmup and trains with one."""

    replicas: int
    rate: float
    warmup: int
    without: float
    """Mean accuracy over the seeds."""
    rescued: float


def rise(warmup: float, epochs: float, replicas: int) -> Schedule:
    """From one replica's rate to that of all: a factor of the latter, by progress.

    >>> factor = rise(4, 8, 4)
    >>> factor(0.0), factor(0.25), factor(0.5), factor(1.0)
    (0.25, 0.625, 1.0, 1.0)
    """
    return warmed(constant, warmup / epochs, 1 / replicas) if warmup else constant


def measure(report: Report, epochs: int = EPOCHS, seeds: int = SEEDS) -> Warmups:
    """Train all of it: one stack for each number of replicas."""
    torch.set_num_threads(1)
    samples = digits()
    warmups = [w for w in WARMUPS if w <= epochs]
    grid = [(r, w, s) for r in RATES for w in warmups for s in range(seeds)]
    lengths, accuracy = [], []
    for number, replicas in enumerate(REPLICAS):
        batch = replicas * EACH
        what = f"{len(grid)} models on {replicas} replicas' batch"
        per_epoch = -(-len(samples) // batch)
        steps = epochs * per_epoch
        stack = Stack(SIZES, [seed for _, _, seed in grid], samples.inputs.device)
        columns = {
            (r, w): [r * rise(w, epochs, replicas)((step + 0.5) / steps) for step in range(steps)]
            for r in RATES
            for w in warmups
        }
        rates = torch.tensor([columns[r, w] for r, w, _ in grid]).T
        found = train(
            stack,
            samples,
            Momentum(stack, rates),
            batch=batch,
            looks=[round(n * per_epoch / LOOKS) for n in range(LOOKS * epochs + 1)],
            advance=partial(_advance, report, what, number, steps),
        )
        lengths.append([round(epochs_of(s, batch, len(samples)), 3) for s in found.steps])
        accuracy.append(plain(found.accuracy.view(-1, len(RATES), len(warmups), seeds), 3))
    return Warmups(
        each=EACH,
        replicas=list(REPLICAS),
        rates=[float(f"{rate:.3g}") for rate in RATES],
        warmups=warmups,
        epochs=lengths,
        accuracy=accuracy,
    )


def _advance(report: Report, what: str, number: int, steps: int, step: int) -> None:
    report((number + step / steps) / len(REPLICAS), what)


def found(measured: Warmups) -> Found:
    """Where a warmup changes most, as the mean over the seeds."""
    cells = [
        Found(
            replicas,
            rate,
            warmup,
            without=float(ends[at, 0].mean()),
            rescued=float(ends[at, place].mean()),
        )
        for replicas in measured.replicas
        for ends in [measured.ends(replicas)]
        for at, rate in enumerate(measured.rates)
        for place, warmup in enumerate(measured.warmups)
    ]
    return max(cells, key=lambda cell: cell.rescued - cell.without)
