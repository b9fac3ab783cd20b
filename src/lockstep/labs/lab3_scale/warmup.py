"""Measure divergence and warmup, and draw them: rates near the edge, with and without a rise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy
import torch

from lockstep.labs.lab3_scale.model_stack import Momentum, Stack, epochs_of, train
from lockstep.labs.lab3_scale.rate_grid import SIZES, plain
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import digits
from lockstep.labs.shared.drawing import COLOURS, Figure, Trace, axes, band, line, ticks
from lockstep.report.page import BLUE, GREY, ORANGE, RED
from lockstep.scaling.rates.schedules import Schedule, constant, warmed

EACH = 16
"""The samples of one replica in a step; the global batch grows with the replicas."""
REPLICAS = (2, 4, 8)
RATES = tuple(2 ** (n / 4) for n in range(-1, 6))
WARMUPS = (0, 1, 2, 4, 6)
EPOCHS, SEEDS = 8, 4
LOOKS = 2
"""Evaluations per epoch."""


@dataclass(frozen=True, kw_only=True)
class Warmups:
    """The accuracy during every training run."""

    each: int
    """The samples of one replica in a step."""
    replicas: list[int]
    rates: list[float]
    """The rates after the warmup, for all replicas together."""
    warmups: list[int]
    """The lengths of the warmups, in epochs."""
    epochs: list[list[float]]
    """The epochs of the evaluations, by replicas."""
    accuracy: list[Any]
    """Accuracy by replicas, evaluation, rate, warmup, seed; None if the scores were NaN."""

    @cached_property
    def curves(self) -> list[numpy.ndarray]:
        """`accuracy` as arrays by replicas; None counts as 0."""
        return [numpy.nan_to_num(numpy.array(one, float), nan=0.0) for one in self.accuracy]

    def ends(self, replicas: int) -> numpy.ndarray:
        """Return the accuracy [rates, warmups, seeds] after the last epoch."""
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
    """Return a schedule that rises from one replica's rate to the full rate.

    >>> factor = rise(4, 8, 4)
    >>> factor(0.0), factor(0.25), factor(0.5), factor(1.0)
    (0.25, 0.625, 1.0, 1.0)
    """
    return warmed(constant, warmup / epochs, 1 / replicas) if warmup else constant


def measure(report: Report, epochs: int = EPOCHS, seeds: int = SEEDS) -> Warmups:
    """Train all runs, one stack for each number of replicas."""
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
    """Find where a warmup changes most, by the mean over the seeds."""
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


def figure(found: Warmups, *, replicas: int, rate: float, warmup: int, per_node: int) -> Figure:
    """Draw the accuracy during training with and without a warmup; below, the rate."""
    place, at = found.replicas.index(replicas), found.rates.index(rate)
    x, curves = found.epochs[place], found.curves[place]
    data: list[Trace] = []
    sides = [(0, RED, "no warmup")]
    if warmup:
        sides.append((found.warmups.index(warmup), BLUE, f"{_epochs(warmup)} of warmup"))
    for which, colour, name in sides:
        seeds = curves[:, at, which]
        data += [
            band(name, x, seeds.min(1), seeds.max(1), colour),
            line(name, x, seeds.mean(1), colour),
        ]
    last = x[-1]
    fine = numpy.linspace(0.0, last, 97)
    ramp = rise(warmup, last, replicas)
    own = line("its rate", fine.tolist(), [rate * ramp(t / last) for t in fine], BLUE)
    data.append(own | {"yaxis": "y2", "showlegend": False})
    if warmup and per_node < replicas:
        other = rise(warmup, last, per_node)
        name = f"from rate / {per_node} (GPUs of a node)"
        rates = [rate * other(t / last) for t in fine]
        data.append(line(name, fine.tolist(), rates, ORANGE, dash="dot") | {"yaxis": "y2"})
    layout = axes("epochs", "test accuracy", y_axis={"range": [0, 1.02], "domain": [0.4, 1]})
    layout["xaxis"]["anchor"] = "y2"
    layout["yaxis2"] = {"title": {"text": "rate"}, "domain": [0, 0.3], "range": [0, 1.1 * rate]}
    return {"data": data, "layout": layout, "note": _note(found, replicas, at, warmup, per_node)}


def _note(found: Warmups, replicas: int, at: int, warmup: int, per_node: int) -> str:
    ends, rate = found.ends(replicas)[at], found.rates[at]
    sides = {"without": ends[0]}
    if warmup:
        sides[f"with {warmup} epochs of it"] = ends[found.warmups.index(warmup)]
    said = [f"{name} {seeds.mean():.1%} ({_each(seeds)})" for name, seeds in sides.items()]
    return (
        f"{replicas} replicas x {found.each} samples: a global batch of {replicas * found.each}. "
        f"A warmup starts at {rate:g} / {replicas} = {rate / replicas:.3g}, the rate of one "
        f"replica; divided by the {per_node} GPUs of a node, it would be {rate / per_node:.3g}.\n"
        f"At the end, mean and every seed: {'; '.join(said)}."
    )


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' if count > 1 else ''}"


def _each(seeds: numpy.ndarray) -> str:
    return ", ".join(f"{100 * value:.0f}" for value in seeds)


def ends(found: Warmups, *, replicas: int, rate: float) -> Figure:
    """Draw the final accuracy by rate, with a line for each length of the warmup."""
    means = found.ends(replicas).mean(2)
    data = []
    for place, warmup in enumerate(found.warmups):
        name = _epochs(warmup) if warmup else "no warmup"
        curve = line(name, found.rates, means[:, place], (RED, *COLOURS)[place])
        data.append(curve | {"mode": "lines+markers", "marker": {"size": 7}})
    data.append(line("chosen rate", [rate, rate], [0, 1], GREY, dash="dot", width=1.5))
    layout = axes(
        "learning rate after the warmup",
        "test accuracy at the end",
        x_axis=ticks(found.rates),
        y_axis={"range": [0, 1.02]},
    )
    return {"data": data, "layout": layout}
