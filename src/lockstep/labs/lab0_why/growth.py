"""The growth of models, training runs and machines: straight lines on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy

from lockstep.labs.lab0_why.facts import BOXES, MODELS, SUPERCOMPUTERS, Point
from lockstep.labs.shared.drawing import axes, dots, tidy
from lockstep.report.page import BLUE, GREEN, GREY, ORANGE, label

FIRST, LAST = 2009, 2025
COMPUTE, PARAMETERS, MACHINES = "training compute", "parameters of a model", "machines"
QUANTITIES = (COMPUTE, PARAMETERS, MACHINES)
NAMED = ("AlexNet", "AlphaGo Zero", "GPT-3", "Llama 3.1, 405B", "Jaguar", "El Capitan", "8 H100")
_UNITS = {COMPUTE: "PF/s-days", PARAMETERS: "parameters", MACHINES: "PF/s"}


def points(quantity: str) -> dict[str, list[Point]]:
    """Return the published numbers by series."""
    if quantity == COMPUTE:
        runs = [Point(m.name, m.year, m.pf_days, m.source) for m in MODELS if m.pf_days]
        return {"training runs": runs}
    if quantity == PARAMETERS:
        models = [Point(m.name, m.year, m.parameters, m.source) for m in MODELS if m.parameters]
        return {"models": models}
    return {"fastest computer": list(SUPERCOMPUTERS), "one box of GPUs": list(BOXES)}


class Trend(NamedTuple):
    """A straight line through the logarithms."""

    doubling: float
    """The months in which the value doubles; negative if it halves."""
    at: float
    """The base-2 logarithm of the value in the year 2000."""

    def value(self, year: float) -> float:
        """Return the value of the line in a year."""
        return float(2.0 ** (self.at + 12.0 * (year - 2000.0) / self.doubling))


def trend(found: Sequence[Point]) -> Trend | None:
    """Fit a line to the points; return None if they are too few or too close.

    >>> trend([Point("a", 2000, 1.0, ""), Point("b", 2002, 4.0, "")]).doubling
    12.0
    """
    years = [point.year for point in found]
    if len(found) < 2 or max(years) - min(years) < 0.5:
        return None
    logs = [math.log2(point.value) for point in found]
    slope, start = numpy.polyfit([y - 2000.0 for y in years], logs, 1)
    return Trend(round(12.0 / float(slope), 9), float(start)) if abs(slope) > 1e-3 else None


def figure(quantity: str, first: int, last: int) -> dict[str, Any]:
    """Draw published numbers over the years, and a line through those from `first` to `last`."""
    first, last = min(first, last), max(first, last)
    data, notes = [], []
    for (name, found), colour in zip(points(quantity).items(), (BLUE, ORANGE), strict=False):
        seen = [point for point in found if first <= point.year < last + 1]
        rest = [point for point in found if point not in seen]
        data.append(_dots(name, seen, colour, quantity))
        data.append(_names([point for point in found if point.name in NAMED], colour))
        if rest:
            data.append(_dots("other years", rest, GREY, quantity) | {"showlegend": False})
        line = trend(seen)
        if line is None:
            notes.append(f"{name}: too few or too close to fit a line.")
            continue
        ends = [min(point.year for point in seen), max(point.year for point in seen)]
        style = {"color": colour if len(points(quantity)) > 1 else GREEN, "dash": "dash"}
        name_of = f"doubles in {line.doubling:.1f} months"
        trace = {"x": ends, "y": tidy(map(line.value, ends)), "mode": "lines", "line": style}
        data.append(trace | {"name": name_of})
        years = ends[1] - ends[0]
        times = float(f"{line.value(ends[1]) / line.value(ends[0]):.2g}")
        notes.append(
            f"{name}: {times:,.0f} times in {years:.1f} years, a doubling in {line.doubling:.1f} "
            f"months. At Moore's two years it would be {2 ** (years / 2):,.0f} times."
        )
    if quantity == MACHINES:
        notes.append(
            "The two series measure different things: Linpack in float64; peaks in 16 or 8 bits, "
            "since 8 A100 with half of the weights zero."
        )
    log = {"type": "log", "exponentformat": "power", "dtick": 1 if quantity == MACHINES else 2}
    years_axis = {"range": [FIRST, LAST + 1], "dtick": 4}
    layout = axes("year", _UNITS[quantity], x_axis=years_axis, y_axis=log)
    # The chosen years.
    window = {"type": "rect", "yref": "paper", "x0": first, "x1": last + 1, "y0": 0, "y1": 1}
    layout["shapes"] = [window | {"fillcolor": GREY, "opacity": 0.1, "line": {"width": 0}}]
    return {"data": data, "layout": layout, "note": "\n".join(notes)}


def _names(found: Sequence[Point], colour: str) -> dict[str, Any]:
    """Draw the names of a few dots, towards the middle of the picture."""
    middle = (FIRST + LAST) / 2
    sides = ["middle right" if point.year < middle else "middle left" for point in found]
    return {
        "x": [point.year for point in found],
        "y": tidy(point.value for point in found),
        "text": [f"&nbsp;{label(point.name)}&nbsp;" for point in found],
        "mode": "text",
        "textposition": sides,
        "textfont": {"size": 11, "color": colour},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _dots(name: str, found: Sequence[Point], colour: str, quantity: str) -> dict[str, Any]:
    trace = dots(name, [point.year for point in found], [point.value for point in found], colour)
    return trace | {
        "text": [label(f"{p.name}: {p.value:.3g} {_UNITS[quantity]}") for p in found],
        "customdata": [label(point.source) for point in found],
        "hovertemplate": "%{text}<br>%{customdata}<extra></extra>",
    }
