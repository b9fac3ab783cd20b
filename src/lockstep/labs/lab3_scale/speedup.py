"""Extrapolate a scaling ratio to more replicas, and derive the serial share of a step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy

from lockstep.labs.lab3_scale.throughput import Throughput
from lockstep.labs.shared.drawing import Figure, axes, dots, line, spread, ticks
from lockstep.report.page import BLUE, GREY, ORANGE, PURPLE

PUBLISHED = (4, 615.0, 2389.0)
"""GPUs, and images per second on one and on all, in a saved workshop run."""
SHOWN = (1, 2, 4, 8, 16, 32, 64)
COLUMNS = ("replicas", "images per second", "times one replica", "serial share")


def amdahl(replicas: float, serial: float) -> float:
    """Return the speedup of a batch if a share `serial` of its time does not shrink.

    >>> amdahl(4, 0.0), amdahl(4, 1.0), round(amdahl(64, 0.05), 1)
    (4.0, 1.0, 15.4)
    """
    return 1.0 / (serial + (1.0 - serial) / replicas)


def serial_share(replicas: int, ratio: float) -> float:
    """Return the serial share that explains a ratio: the inverse of `amdahl`.

    >>> round(serial_share(4, amdahl(4, 0.05)), 6)
    0.05
    """
    share = (replicas / ratio - 1.0) / (replicas - 1.0)
    return min(1.0, max(0.0, share))


def with_link(replicas: float, step: float, gradient_bytes: float, speed: float) -> float:
    """Return the throughput relative to one replica, on a ring of `speed` bytes per second.

    Every replica computes its own batch for `step` seconds, then sends 2 (N - 1) / N of its
    gradients. Nothing hides behind the backward pass: this is the worst case.

    >>> with_link(1, 0.1, 1e9, 1e9), with_link(4, 0.1, 1e8, 1e12) > 3.99
    (1.0, True)
    """
    exchange = 2.0 * (replicas - 1.0) / replicas * gradient_bytes / speed
    return replicas * step / (step + exchange)


def figure(found: Throughput, *, serial: float, megabytes: float, speed: float) -> Figure:
    """Draw the measured ratios, and two lines that follow from the learner's assumptions.

    `serial` is a share of a step; `megabytes` of gradients travel at `speed` gigabytes per second.
    """
    x = numpy.geomspace(SHOWN[0], SHOWN[-1], 49)
    count, one, many = PUBLISHED
    cut = [amdahl(n, serial) for n in x]
    linked = [with_link(n, found.step(), megabytes * 1e6, speed * 1e9) for n in x]
    places = [round(float(n), 3) for n in x]
    data = [
        line("ideal", places, places, GREY, dash="dot", width=1.5),
        line("each, by link", places, linked, BLUE),
        line("cut, by Amdahl", places, cut, ORANGE),
        _measured("each, measured", found, found.each, BLUE, "circle"),
        _measured("cut, measured", found, found.shared, ORANGE, "square"),
        dots("published", [count], [many / one], PURPLE, symbol="diamond"),
    ]
    layout = axes(
        "replicas",
        "times one replica",
        x_axis=ticks(SHOWN),
        y_axis=ticks(SHOWN),
    )
    last = SHOWN[-1]
    note = (
        f"On {last} replicas: {linked[-1]:.3g}x with a batch for each "
        f"({linked[-1] / last:.0%} of ideal), {cut[-1]:.3g}x with one batch cut into {last}."
    )
    return {"data": data, "layout": layout, "note": note}


def _measured(
    name: str, found: Throughput, rates: list[list[float]], colour: str, symbol: str
) -> dict[str, object]:
    times = found.ratio(rates)
    middle = [median(t) for t in times]
    # One replica is the unit, so it has no spread.
    return spread(
        dots(name, found.replicas[1:], middle[1:], colour, symbol=symbol, size=11), times[1:]
    )


def rows(found: Throughput) -> list[list[str]]:
    """Return the table rows: replicas, images per second, ratio with range, serial share."""
    shown = []
    kinds = (("a batch for each", found.each), ("one batch cut", found.shared))
    for name, rates in kinds:
        for n, own, times in zip(found.replicas, rates, found.ratio(rates), strict=True):
            if n == 1 and rates is found.shared:
                continue
            share = f"{serial_share(n, median(times)):.1%}" if n > 1 else "-"
            shown.append([f"{n}, {name}", f"{median(own):,.0f}", _range(times), share])
    count, one, many = PUBLISHED
    published = f"{serial_share(count, many / one):.1%}"
    shown.append([f"{count} GPUs, published", f"{many:,.0f}", f"{many / one:.2f}", published])
    return shown


def _range(values: Sequence[float]) -> str:
    if max(values) - min(values) < 0.005:
        return f"{median(values):.2f}"
    return f"{median(values):.2f} ({min(values):.2f} - {max(values):.2f})"
