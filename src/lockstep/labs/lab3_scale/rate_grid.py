"""Train a grid of rates and batch sizes, all rates of a batch size at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import torch

from lockstep.labs.lab3_scale.model_stack import Stack
from lockstep.labs.lab3_scale.training import Momentum, train
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import CLASSES, PIXELS, digits

SIZES = (PIXELS, 32, CLASSES)
BATCHES = (8, 16, 32, 64, 128, 256, 512)
RATES = tuple(0.01 * 2**n for n in range(10))
MOMENTA = (0.0, 0.9)
SEEDS = 3
EPOCHS, LEAST_STEPS = 5, 100
"""The epochs of a training run, and its least number of steps."""
APART = 1.3
"""The ratio between the steps of successive evaluations."""


@dataclass(frozen=True, kw_only=True)
class Explored:
    """Every training run of the grid, with evaluations along the way."""

    samples: int
    """The samples in an epoch."""
    batches: list[int]
    rates: list[float]
    momenta: list[float]
    seeds: int
    steps: list[list[int]]
    """The steps of the evaluations, by batch size."""
    accuracy: list[Any]
    """Accuracy by batch size, evaluation, momentum, rate, seed; None if the scores were NaN."""
    loss: list[Any]
    """The mean test loss, by the same indices."""

    @cached_property
    def accuracies(self) -> list[numpy.ndarray]:
        """`accuracy` as arrays by batch size, NaN for None."""
        return [numpy.array(one, float) for one in self.accuracy]

    @cached_property
    def losses(self) -> list[numpy.ndarray]:
        """`loss` as arrays by batch size, NaN for None."""
        return [numpy.array(one, float) for one in self.loss]

    def steps_in(self, epochs: float, batch: int) -> int:
        """Return the number of steps in some epochs."""
        return max(1, round(epochs * -(-self.samples // batch)))


def measure(report: Report, batches: Sequence[int] = BATCHES, seeds: int = SEEDS) -> Explored:
    """Train the whole grid, one stack per batch size."""
    torch.set_num_threads(1)
    samples = digits()
    grid = [(m, r, s) for m in MOMENTA for r in RATES for s in range(seeds)]
    momenta, rates = (torch.tensor([cell[at] for cell in grid]) for at in (0, 1))
    # Estimated times: many small steps, or few large ones.
    lengths = [_length(len(samples), b) * (60 + b) for b in batches]
    steps, accuracy, loss = [], [], []
    for number, batch in enumerate(batches):
        report(sum(lengths[:number]) / sum(lengths), f"{len(grid)} models at batch {batch}")
        stack = Stack(SIZES, [seed for _, _, seed in grid], samples.inputs.device)
        looks = _looks(len(samples), batch)
        found = train(stack, samples, Momentum(stack, rates, momenta), batch=batch, looks=looks)
        shape = (-1, len(MOMENTA), len(RATES), seeds)
        steps.append(found.steps)
        accuracy.append(plain(found.accuracy.view(shape), 4))
        loss.append(plain(found.loss.view(shape), 4))
    return Explored(
        samples=len(samples),
        batches=list(batches),
        rates=[round(rate, 4) for rate in RATES],
        momenta=list(MOMENTA),
        seeds=seeds,
        steps=steps,
        accuracy=accuracy,
        loss=loss,
    )


def _length(samples: int, batch: int) -> int:
    return max(EPOCHS * -(-samples // batch), LEAST_STEPS)


def _looks(samples: int, batch: int) -> list[int]:
    """Return the steps of the evaluations, which include the ends of all epochs."""
    last, per_epoch = _length(samples, batch), -(-samples // batch)
    looks = {last, *range(per_epoch, EPOCHS * per_epoch + 1, per_epoch)}
    step = 1.0
    while step < last:
        looks.add(round(step))
        step = max(step + 1, step * APART)
    return sorted(looks)


def plain(values: torch.Tensor, digits: int) -> Any:
    """Return nested lists, rounded to `digits` decimals, with None for values that are not numbers.

    >>> plain(torch.tensor([[0.12345, torch.nan]], dtype=torch.float64), 2)
    [[0.12, None]]
    """

    def tidied(value: Any) -> Any:
        if isinstance(value, list):
            return [tidied(part) for part in value]
        return round(value, digits) if math.isfinite(value) else None

    return tidied(values.tolist())
