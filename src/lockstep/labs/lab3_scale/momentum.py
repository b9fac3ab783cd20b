"""Train at many momenta and rates, all at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy
import torch

from lockstep.labs.lab3_scale.model_stack import Momentum, Stack, epochs_of, train
from lockstep.labs.lab3_scale.rate_grid import SIZES, plain
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import digits
from lockstep.labs.shared.drawing import Figure, axes, band, dots, line, ticks
from lockstep.report.page import BLUE, GREY, ORANGE

MOMENTA = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
RATES = tuple(0.0025 * 2**n for n in range(10))
BATCH, EPOCHS, SEEDS = 64, 5, 3
SLOWEST = 4
"""Steps between two evaluations."""


@dataclass(frozen=True, kw_only=True)
class Momenta:
    """The accuracy during every training run."""

    batch: int
    momenta: list[float]
    rates: list[float]
    epochs: list[float]
    """The epochs of the evaluations."""
    accuracy: list[Any]
    """Accuracy by evaluation, momentum, rate, seed; None if the scores were NaN."""

    @cached_property
    def curves(self) -> numpy.ndarray:
        """`accuracy` as an array; None counts as 0."""
        return numpy.nan_to_num(numpy.array(self.accuracy, float), nan=0.0)

    def best_rate(self, momentum: float) -> float:
        """Return the rate with the best final accuracy at this momentum, by the mean over seeds."""
        ends = self.curves[-1, self.momenta.index(momentum)].mean(1)
        return self.rates[int(ends.argmax())]


def measure(report: Report, seeds: int = SEEDS, epochs: int = EPOCHS) -> Momenta:
    """Train all models as one stack."""
    torch.set_num_threads(1)
    samples = digits()
    grid = [(m, r, s) for m in MOMENTA for r in RATES for s in range(seeds)]
    momenta, rates = (torch.tensor([cell[at] for cell in grid]) for at in (0, 1))
    last = epochs * -(-len(samples) // BATCH)
    looks = [*range(0, last, SLOWEST), last]
    stack = Stack(SIZES, [seed for _, _, seed in grid], samples.inputs.device)
    what = f"{len(grid)} models"
    found = train(
        stack,
        samples,
        Momentum(stack, rates, momenta),
        batch=BATCH,
        looks=looks,
        advance=lambda step: report(step / last, what),
    )
    return Momenta(
        batch=BATCH,
        momenta=list(MOMENTA),
        rates=[round(rate, 4) for rate in RATES],
        epochs=[round(epochs_of(step, BATCH, len(samples)), 3) for step in found.steps],
        accuracy=plain(found.accuracy.view(-1, len(MOMENTA), len(RATES), seeds), 3),
    )


def figure(found: Momenta, *, momentum: float, rate: float) -> Figure:
    """Draw the accuracy during training with this momentum and with none, at the same rate."""
    chosen, at = found.momenta.index(momentum), found.rates.index(rate)
    x = found.epochs
    data = []
    for which, colour in {0: GREY, chosen: BLUE}.items():
        seeds = found.curves[:, which, at]
        name = f"momentum {found.momenta[which]:g}, rate {rate:g}"
        data += [
            band(name, x, seeds.min(1), seeds.max(1), colour),
            line(name, x, seeds.mean(1), colour),
        ]
    # A constant gradient adds up to rate / (1 - momentum).
    total = rate / (1 - momentum)
    near = int(numpy.abs(numpy.log(numpy.array(found.rates) / total)).argmin())
    if chosen and found.rates[near] / total < 1.5 and total / found.rates[near] < 1.5:
        name = f"no momentum, rate {found.rates[near]:g}"
        data.append(line(name, x, found.curves[:, 0, near].mean(1), ORANGE, dash="dash"))
    layout = axes("epochs", "test accuracy", y_axis={"range": [0, 1.02]})
    note = (
        f"A constant gradient adds up to rate / (1 - momentum) = {total:.3g}. "
        f"Best rate at momentum {momentum:g}: {found.best_rate(momentum):g}; "
        f"without momentum: {found.best_rate(0.0):g}."
    )
    return {"data": data, "layout": layout, "note": note}


def ends(found: Momenta, *, momentum: float, along: bool) -> Figure:
    """Draw the final accuracy by rate or, with `along`, by rate / (1 - momentum)."""
    data = []
    x_all = numpy.array(found.rates)
    for which, own in enumerate(found.momenta):
        x = x_all / (1 - own) if along else x_all
        y = found.curves[-1, which].mean(1)
        picked = own == momentum
        trace = line(
            f"momentum {own:g}", [float(f"{v:.3g}") for v in x], y, BLUE if picked else GREY
        )
        trace["line"] |= {"width": 3 if picked else 1}
        trace["opacity"] = 1.0 if picked else 0.25 + 0.6 * which / len(found.momenta)
        trace["showlegend"] = picked
        data.append(trace)
    best = found.best_rate(momentum)
    top = found.curves[-1, found.momenta.index(momentum)].mean(1).max()
    data.append(dots("best", [best / (1 - momentum) if along else best], [top], ORANGE))
    layout = axes(
        "rate / (1 - momentum)" if along else "learning rate",
        f"test accuracy after {found.epochs[-1]:g} epochs",
        x_axis=ticks((0.001, 0.01, 0.1, 1, 10, 100)) | {"range": [-2.7, 1.6 if along else 0.2]},
        y_axis={"range": [0, 1.02]},
    )
    return {"data": data, "layout": layout}
