"""Rate against batch size: a grid of trainings, all rates of a batch size at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import torch

from lockstep.labs.lab3_scale.digits import CLASSES, PIXELS, digits
from lockstep.labs.lab3_scale.model_stack import Stack
from lockstep.labs.lab3_scale.training import Momentum, train
from lockstep.labs.shared.apart import Report

SIZES = (PIXELS, 32, CLASSES)
BATCHES = (8, 16, 32, 64, 128, 256, 512)
RATES = tuple(0.01 * 2**n for n in range(10))
MOMENTA = (0.0, 0.9)
SEEDS = 3
EPOCHS, LEAST_STEPS = 5, 100
"""A training takes so many passes over the data, and so many steps at least."""
APART = 1.3
"""From a look at the test data to the next there are so many times as many steps."""


@dataclass(frozen=True, kw_only=True)
class Explored:
    """Every training of the grid, looked at on its way."""

    samples: int
    """In an epoch."""
    batches: list[int]
    rates: list[float]
    momenta: list[float]
    seeds: int
    steps: list[list[int]]
    """Of the looks, by batch size."""
    accuracy: list[Any]
    """By batch size, look, momentum, rate, seed; None: the scores were no numbers."""
    loss: list[Any]
    """The same for the mean loss over the test data."""

    @cached_property
    def accuracies(self) -> list[numpy.ndarray]:
        """Arrays by batch size, NaN for None."""
        return [numpy.array(one, float) for one in self.accuracy]

    @cached_property
    def losses(self) -> list[numpy.ndarray]:
        """Arrays by batch size, NaN for None."""
        return [numpy.array(one, float) for one in self.loss]

    def steps_in(self, epochs: float, batch: int) -> int:
        """Steps that so many passes over the data take."""
        return max(1, round(epochs * -(-self.samples // batch)))


def measure(report: Report, batches: Sequence[int] = BATCHES, seeds: int = SEEDS) -> Explored:
    """Train all of it: one stack for each batch size."""
    torch.set_num_threads(1)
    samples = digits()
    grid = [(m, r, s) for m in MOMENTA for r in RATES for s in range(seeds)]
    momenta, rates = (torch.tensor([cell[at] for cell in grid]) for at in (0, 1))
    # As the time goes: many small steps, or few of many samples.
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
    """Steps at which a training is looked at: always the ends of its epochs."""
    last, per_epoch = _length(samples, batch), -(-samples // batch)
    looks = {last, *range(per_epoch, EPOCHS * per_epoch + 1, per_epoch)}
    step = 1.0
    while step < last:
        looks.add(round(step))
        step = max(step + 1, step * APART)
    return sorted(looks)


def plain(values: torch.Tensor, digits: int) -> Any:
    """Nested lists with so many digits behind the point, None for what is no number.

    >>> plain(torch.tensor([[0.12345, torch.nan]], dtype=torch.float64), 2)
    [[0.12, None]]
    """

    def tidied(value: Any) -> Any:
        if isinstance(value, list):
            return [tidied(part) for part in value]
        return round(value, digits) if math.isfinite(value) else None

    return tidied(values.tolist())
