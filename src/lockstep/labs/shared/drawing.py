"""Pieces of Plotly figures that the pictures of all labs share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from lockstep.report.page import BLUE, GREEN, GREY, ORANGE, PURPLE, RED

Figure = dict[str, Any]
Trace = dict[str, Any]
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY)


def line(name: str, x: Iterable[Any], y: Iterable[Any], colour: str, **style: Any) -> Trace:
    """Return a line; values that are not numbers leave gaps."""
    return {
        "x": list(x),
        "y": tidy(y),
        "name": name,
        "mode": "lines",
        "line": {"color": colour, "width": 2.5} | style,
    }


def dots(name: str, x: Iterable[Any], y: Iterable[Any], colour: str, **style: Any) -> Trace:
    """Return points."""
    return {
        "x": list(x),
        "y": tidy(y),
        "name": name,
        "mode": "markers",
        "marker": {"color": colour, "size": 9} | style,
    }


def spread(trace: Trace, values: Sequence[Sequence[float]]) -> Trace:
    """Add bars to a trace, from the least to the largest value of each point."""
    pairs = list(zip(trace["y"], values, strict=True))
    colour = (trace.get("line") or trace["marker"])["color"]
    bars = {
        "type": "data",
        "symmetric": False,
        "array": tidy(max(v) - y if v and y is not None else None for y, v in pairs),
        "arrayminus": tidy(y - min(v) if v and y is not None else None for y, v in pairs),
        "color": colour,
        "thickness": 1.5,
    }
    return trace | {"error_y": bars}


def band(
    name: str, x: Sequence[Any], low: Iterable[Any], high: Iterable[Any], colour: str
) -> Trace:
    """Return a pale area between two lines, without a legend entry."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return {
        "x": [*x, *reversed(list(x))],
        "y": [*tidy(low), *reversed(tidy(high))],
        "name": name,
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.16)",
        "hoverinfo": "skip",
        "showlegend": False,
    }


def axes(x: str, y: str, *, x_axis: Any = None, y_axis: Any = None, **more: Any) -> dict[str, Any]:
    """Return a layout with a title on each axis."""
    return {
        "xaxis": {"title": {"text": x}} | (x_axis or {}),
        "yaxis": {"title": {"text": y}} | (y_axis or {}),
        **more,
    }


def ticks(values: Sequence[float], form: str = "g") -> dict[str, Any]:
    """Return a logarithmic axis with ticks at these values."""
    shown = [f"{value:{form}}" for value in values]
    return {"type": "log", "tickvals": list(values), "ticktext": shown}


def including(values: Iterable[float], value: float) -> list[float]:
    """Add a measured value to the values of a slider.

    >>> including([0.1, 1.0], 0.123456)
    [0.1, 0.123, 1.0]
    """
    return sorted({*values, three(value)})


def three(value: float) -> float:
    """Round to three digits, as a slider shows it.

    >>> three(0.0123456)
    0.0123
    """
    return float(f"{value:.3g}")


def tidy(values: Iterable[Any], digits: int = 4) -> list[float | None]:
    """Round numbers to the digits that a picture shows; None for values that are not numbers."""
    return [
        None if value is None or not numpy.isfinite(value) else float(f"{value:.{digits}g}")
        for value in values
    ]
