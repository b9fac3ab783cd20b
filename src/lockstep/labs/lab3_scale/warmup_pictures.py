"""Draw divergence and warmup: training at one rate, and the final accuracy at all rates."""

from __future__ import annotations

import numpy

from lockstep.labs.lab3_scale.warmup import Warmups, rise
from lockstep.labs.shared.drawing import COLOURS, Figure, Trace, axes, band, line
from lockstep.report.page import BLUE, GREY, ORANGE, RED


def figure(found: Warmups, *, replicas: int, rate: float, warmup: int, per_node: int) -> Figure:
    """Draw the accuracy during training with and without a warmup; below, the rate."""
    place, at = found.replicas.index(replicas), found.rates.index(rate)
    x, curves = found.epochs[place], found.curves[place]
    data: list[Trace] = []
    sides = [(0, RED, "no warmup")]
    if warmup:
        sides.append(
            (
                found.warmups.index(warmup),
                BLUE,
                f"{warmup} epoch{'s' if warmup > 1 else ''} of warmup",
            )
        )
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
        wrong = line(
            f"from rate / {per_node} (GPUs of a node)",
            fine.tolist(),
            [rate * other(t / last) for t in fine],
            ORANGE,
            dash="dot",
        )
        data.append(wrong | {"yaxis": "y2"})
    layout = axes("epochs", "test accuracy", y_axis={"range": [0, 1.02], "domain": [0.4, 1]})
    layout["xaxis"]["anchor"] = "y2"
    layout["yaxis2"] = {
        "title": {"text": "rate"},
        "domain": [0, 0.3],
        "range": [0, 1.1 * rate],
    }
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


def _each(seeds: numpy.ndarray) -> str:
    return ", ".join(f"{100 * value:.0f}" for value in seeds)


def ends(found: Warmups, *, replicas: int, rate: float) -> Figure:
    """Draw the final accuracy by rate, with a line for each length of the warmup."""
    means = found.ends(replicas).mean(2)
    data = []
    for place, warmup in enumerate(found.warmups):
        name = f"{warmup} epoch{'s' if warmup > 1 else ''}" if warmup else "no warmup"
        curve = line(name, found.rates, means[:, place], (RED, *COLOURS)[place])
        data.append(curve | {"mode": "lines+markers", "marker": {"size": 7}})
    data.append(line("chosen rate", [rate, rate], [0, 1], GREY, dash="dot", width=1.5))
    marks = {"type": "log", "tickvals": found.rates, "ticktext": [f"{r:g}" for r in found.rates]}
    layout = axes(
        "learning rate after the warmup",
        "test accuracy at the end",
        x_axis=marks,
        y_axis={"range": [0, 1.02]},
    )
    return {"data": data, "layout": layout}
