"""Draw the grid as a heat map, with the lines of two rules through one of its points."""

from __future__ import annotations

import math
from typing import Any

import numpy

from lockstep.labs.lab3_scale.rate_grid import Explored
from lockstep.labs.shared.drawing import Figure, axes, dots, line, tidy
from lockstep.report.page import BLUE, ORANGE, PURPLE
from lockstep.scaling.rates.rules import linear_rule, sqrt_rule

BUDGETS = (
    *(("epochs", n) for n in (1, 2, 3, 4, 5)),
    *(("steps", n) for n in (10, 25, 50, 100)),
)
"""The budgets of a training run."""
GUESS = 0.2
"""A model with at most this accuracy has learnt nothing: it guesses one class of ten."""
LOST = "✕"
SCALE = [[0, "#3b2a52"], [0.45, "#356b8c"], [0.8, "#3fae8a"], [1, "#f2e56b"]]


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


def best_rates(found: Explored, cells: numpy.ndarray) -> list[float]:
    """Return the rate with the best mean accuracy over the seeds, for each batch size."""
    return [found.rates[place] for place in cells.mean(2).argmax(1)]


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
    best = best_rates(found, cells)
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
