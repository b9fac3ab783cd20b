"""Train a grid of rates and batch sizes, and draw it as a heat map with the lines of two rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import torch

from lockstep.labs.lab3_scale.model_stack import Momentum, Stack, train
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import CLASSES, PIXELS, digits
from lockstep.labs.shared.drawing import Figure, axes, dots, line, tidy
from lockstep.report.page import BLUE, ORANGE, PURPLE
from lockstep.scaling.rates.rules import linear_rule, sqrt_rule

SIZES = (PIXELS, 32, CLASSES)
BATCHES = (8, 16, 32, 64, 128, 256, 512)
RATES = tuple(0.01 * 2**n for n in range(10))
MOMENTA = (0.0, 0.9)
SEEDS = 3
EPOCHS, LEAST_STEPS = 5, 100
"""The epochs of a training run, and its least number of steps."""
APART = 1.3
"""The ratio between the steps of successive evaluations."""
BUDGETS = (
    *(("epochs", n) for n in (1, 2, 3, 4, 5)),
    *(("steps", n) for n in (10, 25, 50, 100)),
)
"""The budgets of a training run."""
GUESS = 0.2
"""A model with at most this accuracy has learnt nothing: it guesses one class of ten."""
LOST = "✕"
SCALE = [[0, "#3b2a52"], [0.45, "#356b8c"], [0.8, "#3fae8a"], [1, "#f2e56b"]]


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


def accuracy_at(found: Explored, budget: tuple[str, int], momentum: float) -> numpy.ndarray:
    """Return [batches, rates, seeds] at the end of the budget; NaN counts as 0."""
    kind, amount = budget
    which = found.momenta.index(momentum)
    cells = []
    for batch, steps, values in zip(found.batches, found.steps, found.accuracies, strict=True):
        end = found.steps_in(amount, batch) if kind == "epochs" else amount
        after = min(int(numpy.searchsorted(steps, end)), len(steps) - 1)
        before = max(0, after - 1)
        whole = steps[after] - steps[before]
        share = min(1.0, (end - steps[before]) / whole) if whole else 1.0
        own = numpy.nan_to_num(values[:, which], nan=0.0)
        cells.append((1 - share) * own[before] + share * own[after])
    return numpy.stack(cells)


def figure(
    found: Explored, *, budget: tuple[str, int], momentum: float, batch: int, rate: float
) -> Figure:
    """Draw the accuracy by rate and batch size; the rules start from `rate` at `batch`."""
    cells = accuracy_at(found, budget, momentum)
    mean = cells.mean(2)
    x = [math.log2(b) for b in found.batches]
    y = [math.log2(r) for r in found.rates]
    lost = (cells <= GUESS).mean(2) > 0.5
    texts = [
        [LOST if lost[b][r] else f"{100 * mean[b][r]:.0f}" for b in range(len(x))]
        for r in range(len(y))
    ]
    heat = {
        "type": "heatmap",
        "x": tidy(x),
        "y": tidy(y),
        "z": [tidy(row, 3) for row in mean.T],
        "text": texts,
        "texttemplate": "%{text}",
        "textfont": {"size": 11},
        "zmin": 0.1,
        "zmax": 1.0,
        "colorscale": SCALE,
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "accuracy %{z}<extra></extra>",
    }
    start = math.log2(batch), math.log2(rate)
    ends = [math.log2(b / batch) for b in found.batches]
    best = [found.rates[place] for place in mean.argmax(1)]
    data = [
        heat,
        dots("best rate", x, [math.log2(r) for r in best], PURPLE, symbol="circle-open", size=22)
        | {"hoverinfo": "skip"},
        line("linear rule", x, [start[1] + math.log2(linear_rule(2.0**e)) for e in ends], ORANGE),
        line("square root", x, [start[1] + math.log2(sqrt_rule(2.0**e)) for e in ends], BLUE),
        dots("base", [start[0]], [start[1]], ORANGE, symbol="star", size=13),
    ]
    for trace in data[1:]:
        trace["cliponaxis"] = True
    layout = axes(
        "batch size (samples)",
        "learning rate",
        x_axis=_marks(x, found.batches),
        y_axis=_marks(y, found.rates),
    )
    note = _note(found, best, mean)
    return {"data": data, "layout": layout, "note": note}


def _marks(places: list[float], values: list[Any]) -> dict[str, Any]:
    return {
        "tickvals": tidy(places),
        "ticktext": [f"{value:g}" for value in values],
        "range": [places[0] - 0.5, places[-1] + 0.5],
        "showgrid": False,
        "zeroline": False,
    }


def _note(found: Explored, best: list[float], mean: numpy.ndarray) -> str:
    ends = [
        f"batch {found.batches[at]} is best at rate {best[at]:g} ({mean[at].max():.1%})"
        for at in (0, -1)
    ]
    return f"{'; '.join(ends).capitalize()}. {LOST} marks cells where most seeds learnt nothing."
