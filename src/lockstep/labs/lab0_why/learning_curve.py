"""Measure a learning curve, fit a power law to some of its points, and draw it.

The curve is the test error of a small model trained on more and more data. All seeds of a size
train at once, as one stack of matrices: for models this small, a step of six costs little more
than a step of one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, cross_entropy

from lockstep.data import Data, digits, fashion_mnist
from lockstep.data.images import FASHION_DEBIAN
from lockstep.errors import UsageError
from lockstep.labs.shared.apart import Report, separate
from lockstep.labs.shared.drawing import axes, dots, line, tidy
from lockstep.predict.learning_curve import LEAST_POINTS, Fit, Range, fit
from lockstep.report.page import BLUE, GREEN, ORANGE, RED

SEEDS = 6
WIDTH = 64
BATCH = 64
LEAST_STEPS, STEPS = 200, 16.0
"""Train for 16 times the square root of the samples: more steps hardly change any result."""
RATE = 6e-3
FASHION_SIZES = (50, 100, 200, 400, 800, 1600, 3200, 6400)
DIGITS_SIZES = (20, 28, 40, 57, 80, 113, 160, 226, 320, 453, 640, 905, 1280)
FURTHER = 100
"""How far the picture extends, as a multiple of the largest size."""
TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9]
BAND = "rgba(47, 158, 110, 0.18)"


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The test errors by number of training samples."""

    data: str
    model: str
    device: str
    sizes: list[int]
    errors: list[list[float]]
    """Errors by size and seed; each seed has its own samples and initial weights."""
    test_samples: int
    seconds: float

    @property
    def means(self) -> list[float]:
        """The mean error over the seeds, by size."""
        return [fmean(seeds) for seeds in self.errors]

    @property
    def spreads(self) -> list[float]:
        """The standard errors of the means."""
        # Seeds may agree by chance, so assume at least the effect of one test sample.
        least = 1.0 / self.test_samples
        return [max(stdev(seeds), least) / math.sqrt(len(seeds)) for seeds in self.errors]


@separate()
def measure(report: Report) -> Learning:
    """Train on Fashion-MNIST if Debian's package is installed, otherwise on the digits."""
    if FASHION_DEBIAN.is_dir():
        return curve(
            "Fashion-MNIST", fashion_mnist(FASHION_DEBIAN, test_samples=4000), FASHION_SIZES, report
        )
    return curve("digits", digits(), DIGITS_SIZES, report)


def curve(name: str, data: Data, sizes: Sequence[int], report: Report) -> Learning:
    """Measure the test errors of `SEEDS` models at every size."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (inputs, targets), test = (
        (_small(data, part.inputs).to(device), part.targets.to(device))
        for part in (data.train, data.test)
    )
    # The progress of a size counts in steps.
    work = [_steps(size) for size in sizes]
    began, errors = time.perf_counter(), []
    for place, size in enumerate(sizes):
        report(sum(work[:place]) / sum(work), f"{SEEDS} models on {size:,} samples each")
        draw = torch.Generator().manual_seed(size)
        chosen = torch.stack(
            [torch.randperm(len(inputs), generator=draw)[:size] for _ in range(SEEDS)]
        ).to(device)
        models = train(inputs[chosen], targets[chosen], _steps(size), draw)
        errors.append(_errors(models, *test))
    return Learning(
        data=name,
        model=f"perceptron {inputs.shape[1]}-{WIDTH}-10",
        device=device,
        sizes=list(sizes),
        errors=errors,
        test_samples=len(test[1]),
        seconds=round(time.perf_counter() - began, 2),
    )


def _small(data: Data, images: Tensor) -> Tensor:
    """Return the pixels as rows; halve the resolution of large images."""
    assert data.prepare is not None
    prepared = data.prepare(images)
    return (avg_pool2d(prepared, 2) if prepared.shape[-1] > 14 else prepared).flatten(1)


def _steps(size: int) -> int:
    return max(LEAST_STEPS, round(STEPS * math.sqrt(size)))


def train(inputs: Tensor, targets: Tensor, steps: int, draw: torch.Generator) -> list[Tensor]:
    """Train one model per entry of `inputs` [models, samples, pixels], the rate falling to 0."""
    count, size, pixels = inputs.shape
    shapes = ((pixels, WIDTH), (1, WIDTH), (WIDTH, 10), (1, 10))
    scales = (math.sqrt(2 / pixels), 0.0, math.sqrt(1 / WIDTH), 0.0)
    weights = [
        (scale * torch.randn(count, *shape, generator=draw)).to(inputs.device).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]
    optimizer = torch.optim.Adam(weights, lr=RATE)
    rows = torch.arange(count, device=inputs.device)[:, None]
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / steps)
        batch = torch.randint(size, (count, min(BATCH, size)), generator=draw).to(inputs.device)
        outputs = _forward(weights, inputs[rows, batch])
        # The sum over models of each model's mean loss: the models do not affect each other.
        loss = cross_entropy(outputs.flatten(0, 1), targets[rows, batch].flatten()) * count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights


def _forward(weights: Sequence[Tensor], inputs: Tensor) -> Tensor:
    first, first_bias, last, last_bias = weights
    hidden = torch.relu(torch.baddbmm(first_bias, inputs, first))
    return torch.baddbmm(last_bias, hidden, last)


@torch.no_grad()
def _errors(weights: Sequence[Tensor], inputs: Tensor, targets: Tensor) -> list[float]:
    """Return the share of test samples that each model gets wrong."""
    outputs = _forward(weights, inputs.expand(len(weights[0]), -1, -1))
    wrong: list[float] = (outputs.argmax(-1) != targets).double().mean(1).tolist()
    return [round(share, 6) for share in wrong]


def counts(found: Learning) -> list[int]:
    """Return the possible numbers of points for a fit."""
    return list(range(LEAST_POINTS, len(found.sizes) + 1))


def targets(found: Learning) -> list[float]:
    """Return target errors, from the error at half the sizes to a third of the final error."""
    means = found.means
    high, low = means[len(means) // 2], means[-1] / 3
    return sorted({float(f"{value:.2g}") for value in numpy.geomspace(high, low, 24)}, reverse=True)


def seen(found: Learning, points: int) -> Fit:
    """Fit the law to the first points."""
    return fit(found.sizes[:points], found.means[:points], found.spreads[:points])


def figure(found: Learning, points: int, target: float) -> dict[str, Any]:
    """Draw the measured points, the law through the first, and the samples for the target."""
    layout = axes(
        "training samples",
        "test error",
        x_axis={"type": "log", "dtick": 1},
        y_axis={"type": "log", "tickvals": TICKS},
    )
    measured = [
        _dots("seen", found, slice(points), BLUE),
        _dots("held out", found, slice(points, None), ORANGE),
    ]
    try:
        law = seen(found, points)
    except UsageError as error:
        return {"data": measured, "layout": layout, "note": str(error)}
    low, high = found.sizes[0], FURTHER * found.sizes[-1]
    x = numpy.geomspace(low, high, 60)
    below, above = law.band(x.tolist())
    best = [law.law.error(float(samples)) for samples in x]
    band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": tidy(x)}
    needs = law.needed(target)
    data = [
        # A logarithmic scale has no zero.
        band | {"y": tidy(numpy.maximum(below, 1e-4)), "showlegend": False},
        band | {"y": tidy(above), "fill": "tonexty", "fillcolor": BAND, "name": f"{law.level:.0%}"},
        line("best law", tidy(x), best, GREEN, width=2),
        *measured,
        _needed(needs, target, low, high),
    ]
    floor = min(target, min(best), found.means[-1]) / 1.6
    layout["yaxis"]["range"] = [math.log10(floor), math.log10(1.25 * found.means[0])]
    layout["xaxis"]["range"] = [math.log10(low / 1.3), math.log10(high)]
    return {"data": data, "layout": layout, "note": _note(found, law, points, target)}


def _needed(needs: Range, target: float, low: float, high: float) -> dict[str, Any]:
    """Draw the interval of samples for a target as a line, which may leave the picture."""
    ends = [min(max(end, low / 1.3), high) for end in (needs.low, needs.high)]
    place = min(max(needs.best, ends[0]), ends[1])
    return {
        "x": tidy([ends[0], place, ends[1]]),
        "y": [target] * 3,
        "mode": "lines+markers",
        "line": {"color": RED, "width": 2},
        "marker": {
            "size": [9, 10, 9],
            "symbol": [
                "line-ns-open",
                "circle",
                "line-ns-open" if needs.high <= high else "triangle-right",
            ],
        },
        "name": f"samples for {target:g}",
        "hovertemplate": "%{x:,.3s} samples<extra></extra>",
    }


def _note(found: Learning, law: Fit, points: int, target: float) -> str:
    a, b, c = law.law
    needs = law.needed(target)
    shown = (
        f"From {points} of {len(found.sizes)} points: error = {a:.3g} · m^{b:.2f} + {c:.2g}. "
        f"An error of {target:g} needs {samples(needs.best)} samples by the best law: at least "
        f"{samples(needs.low)}, {most(needs.high)}."
    )
    if points == len(found.sizes):
        return shown
    size, error = found.sizes[-1], found.means[-1]
    expected = law.error(size)
    inside = "within" if expected.low <= error <= expected.high else "outside"
    return (
        f"{shown}\nHeld out: the error at {size:,} samples was {error:.3f}, {inside} the expected "
        f"{expected.low:.3f} to {expected.high:.3f}; the best law predicts {expected.best:.3f}."
    )


def samples(number: float) -> str:
    """Format a number of samples.

    >>> samples(12345.0), samples(float("inf")), samples(3.2e9)
    ('12,000', 'infinitely many', '3.2e+09')
    """
    if math.isinf(number):
        return "infinitely many"
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.0f}" if rounded < 1e9 else f"{rounded:.2g}"


def most(number: float) -> str:
    """Format the high end of an interval."""
    return "perhaps no amount is enough" if math.isinf(number) else f"at most {samples(number)}"


def _dots(name: str, found: Learning, part: slice, colour: str) -> dict[str, Any]:
    spreads = {"type": "data", "array": tidy(found.spreads[part]), "color": colour}
    hover = "%{x:,} samples: %{y:.4f}<extra></extra>"
    trace = dots(name, found.sizes[part], found.means[part], colour)
    return trace | {"error_y": spreads, "hovertemplate": hover}
