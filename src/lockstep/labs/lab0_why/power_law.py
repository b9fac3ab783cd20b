"""The power law through a measured learning curve, from as many of its points as one allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from lockstep.errors import UsageError
from lockstep.labs.lab0_why.learning_curve import Learning
from lockstep.predict.learning_curve import LEAST_POINTS, Fit, Range, fit
from lockstep.report.page import BLUE, GREEN, ORANGE, RED

FURTHER = 100
"""Times the largest size that the picture shows."""
TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9]
BAND = "rgba(47, 158, 110, 0.18)"


def counts(found: Learning) -> list[int]:
    """How many of the points a fit may see."""
    return list(range(LEAST_POINTS, len(found.sizes) + 1))


def targets(found: Learning) -> list[float]:
    """Errors to ask for: from what half of the data reach down to a third of what all reach."""
    means = found.means
    high, low = means[len(means) // 2], means[-1] / 3
    return sorted({float(f"{value:.2g}") for value in numpy.geomspace(high, low, 24)}, reverse=True)


def seen(found: Learning, points: int) -> Fit:
    """The fit to the first points."""
    return fit(found.sizes[:points], found.means[:points], found.spreads[:points])


def figure(found: Learning, points: int, target: float) -> dict[str, Any]:
    """Measured points, the law through the first of them, and what the target needs."""
    layout = {
        "xaxis": _axis("training samples") | {"dtick": 1},
        "yaxis": _axis("test error") | {"tickvals": TICKS},
    }
    dots = [
        _dots("seen", found, slice(points), BLUE),
        _dots("held out", found, slice(points, None), ORANGE),
    ]
    try:
        law = seen(found, points)
    except UsageError as error:
        return {"data": dots, "layout": layout, "note": str(error)}
    low, high = found.sizes[0], FURTHER * found.sizes[-1]
    x = numpy.geomspace(low, high, 60)
    below, above = law.band(x.tolist())
    best = [law.law.error(float(samples)) for samples in x]
    band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": _short(x)}
    needs = law.needed(target)
    data = [
        # Zero has no place on a logarithmic scale.
        band | {"y": _short(numpy.maximum(below, 1e-4)), "showlegend": False},
        band
        | {"y": _short(above), "fill": "tonexty", "fillcolor": BAND, "name": f"{law.level:.0%}"},
        {
            "x": _short(x),
            "y": _short(best),
            "mode": "lines",
            "line": {"color": GREEN, "width": 2},
            "name": "best law",
        },
        *dots,
        _needed(needs, target, low, high),
    ]
    floor = min(target, min(best), found.means[-1]) / 1.6
    layout["yaxis"]["range"] = [math.log10(floor), math.log10(1.25 * found.means[0])]
    layout["xaxis"]["range"] = [math.log10(low / 1.3), math.log10(high)]
    return {"data": data, "layout": layout, "note": _note(found, law, points, target)}


def _needed(needs: Range, target: float, low: float, high: float) -> dict[str, Any]:
    """The interval of the samples that a target needs, as a line; it may leave the picture."""
    ends = [min(max(end, low / 1.3), high) for end in (needs.low, needs.high)]
    place = min(max(needs.best, ends[0]), ends[1])
    return {
        "x": _short([ends[0], place, ends[1]]),
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
    told = (
        f"From {points} of {len(found.sizes)} points: error = {a:.3g} · m^{b:.2f} + {c:.2g}. "
        f"An error of {target:g} needs {samples(needs.best)} samples by the best law, at least "
        f"{samples(needs.low)}, {most(needs.high)}."
    )
    if points == len(found.sizes):
        return told
    size, error = found.sizes[-1], found.means[-1]
    expected = law.error(size)
    inside = "within" if expected.low <= error <= expected.high else "outside"
    return (
        f"{told}\nHeld out: at {size:,} samples it was {error:.3f}, {inside} the expected "
        f"{expected.low:.3f} to {expected.high:.3f}; the best law says {expected.best:.3f}."
    )


def samples(number: float) -> str:
    """A number of samples as people say it.

    >>> samples(12345.0), samples(float("inf")), samples(3.2e9)
    ('12,000', 'endlessly many', '3.2e+09')
    """
    if math.isinf(number):
        return "endlessly many"
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.0f}" if rounded < 1e9 else f"{rounded:.2g}"


def most(number: float) -> str:
    """The high end of an interval."""
    return "perhaps no amount does it" if math.isinf(number) else f"at most {samples(number)}"


def _dots(name: str, found: Learning, part: slice, colour: str) -> dict[str, Any]:
    return {
        "x": found.sizes[part],
        "y": _short(found.means[part]),
        "error_y": {"type": "data", "array": _short(found.spreads[part]), "color": colour},
        "mode": "markers",
        "marker": {"color": colour, "size": 9},
        "name": name,
        "hovertemplate": "%{x:,} samples: %{y:.4f}<extra></extra>",
    }


def _axis(title: str) -> dict[str, Any]:
    return {"title": {"text": title}, "type": "log"}


def _short(values: Sequence[float] | numpy.ndarray[Any, Any]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
