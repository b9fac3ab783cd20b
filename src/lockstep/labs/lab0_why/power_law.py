"""Fit a power law to some points of a measured learning curve, and draw it."""

from __future__ import annotations

import math
from typing import Any

import numpy

from lockstep.errors import UsageError
from lockstep.labs.lab0_why.learning_curve import Learning
from lockstep.labs.shared.drawing import axes, dots, line, tidy
from lockstep.predict.learning_curve import LEAST_POINTS, Fit, Range, fit
from lockstep.report.page import BLUE, GREEN, ORANGE, RED

FURTHER = 100
"""How far the picture extends, as a multiple of the largest size."""
TICKS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9]
BAND = "rgba(47, 158, 110, 0.18)"


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
    told = (
        f"From {points} of {len(found.sizes)} points: error = {a:.3g} · m^{b:.2f} + {c:.2g}. "
        f"An error of {target:g} needs {samples(needs.best)} samples by the best law: at least "
        f"{samples(needs.low)}, {most(needs.high)}."
    )
    if points == len(found.sizes):
        return told
    size, error = found.sizes[-1], found.means[-1]
    expected = law.error(size)
    inside = "within" if expected.low <= error <= expected.high else "outside"
    return (
        f"{told}\nHeld out: the error at {size:,} samples was {error:.3f}, {inside} the expected "
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
