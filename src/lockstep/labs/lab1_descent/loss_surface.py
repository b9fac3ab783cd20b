"""Draw the loss surface and the path over it, flat and in three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep.labs.lab1_descent.neuron import (
    SAMPLES,
    Array,
    Descent,
    Sums,
    converged,
    descend,
    fitted,
    samples,
    step_seconds,
    sums,
    whole,
)
from lockstep.labs.shared.drawing import axes, line
from lockstep.labs.shared.picture import ground
from lockstep.report.page import BLUE, GREEN, GREY, ORANGE, RED

SIDE, SIDE_3D = 200, 60
W, B = (-8.0, 22.0), (-12.0, 14.0)
FRAMES = 60
POINTS = 400
"""The largest number of points on a path: more would look the same."""
AXES = EPOCHS, STEPS, TIME = "epochs", "steps", "milliseconds"
SHADES = ((0.0, "#0d3b66"), (0.35, BLUE), (0.7, "#9cc5e6"), (1.0, "#eef5fb"))


def grid(part: Sums, side: int = SIDE) -> tuple[Array, Array, Array]:
    """Return (w, b, loss) on a square grid; rows are b."""
    w, b = np.linspace(*W, side), np.linspace(*B, side)
    return w, b, part.loss(w[None, :], b[:, None])


def flat(rate: float, batch: int, noise: float, epochs: int, own: bool) -> dict[str, Any]:
    """Draw the path over the surface of all samples, or over that of the last step's batch."""
    way = descend(rate, batch, noise, epochs)
    part = _last_batch(batch, noise, epochs) if own else whole(noise)
    w, b, loss = grid(part)
    at = _thinned(way)
    best = fitted(noise)
    data = [
        {
            "x": _short(way.w[at]),
            "y": _short(way.b[at]),
            "name": "path",
            "mode": "lines+markers",
            "line": {"color": ORANGE, "width": 2},
            "marker": {"size": 4},
        },
        {
            "x": [round(best[0], 3)],
            "y": [round(best[1], 3)],
            "mode": "markers",
            "name": "least loss",
            "marker": {"symbol": "x", "size": 11, "color": RED},
        },
    ]
    frames = [
        {"traces": [0], "points": k}
        for k in np.unique(np.linspace(1, len(at), FRAMES).astype(int)).tolist()
    ]
    bare = {"showgrid": False, "zeroline": False}
    layout = axes("w", "b", x_axis=bare | {"range": list(W)}, y_axis=bare | {"range": list(B)})
    return {
        "data": data,
        "ground": ground(w, b, np.log10(loss + 1e-9), SHADES),
        "layout": layout,
        "frames": frames,
        "note": summary(way),
    }


def solid(rate: float, batch: int, noise: float, epochs: int) -> dict[str, Any]:
    """Draw the path in three dimensions: (w, b, loss)."""
    way = descend(rate, batch, noise, epochs)
    w, b, loss = grid(whole(noise), SIDE_3D)
    at = _thinned(way)
    inside = at[(np.abs(way.w[at]) < 40) & (np.abs(way.b[at]) < 40)]
    axis = {"xaxis": {"title": {"text": "w"}}, "yaxis": {"title": {"text": "b"}}}
    return {
        "data": [
            {
                "type": "surface",
                "x": _short(w),
                "y": _short(b),
                "z": np.round(loss, 1).tolist(),
                "colorscale": SHADES,
                "opacity": 0.75,
                "showscale": False,
                "hoverinfo": "skip",
            },
            {
                "type": "scatter3d",
                "mode": "lines",
                "name": "path",
                "x": _short(way.w[inside]),
                "y": _short(way.b[inside]),
                "z": np.round(way.loss[inside], 2).tolist(),
                "line": {"color": ORANGE, "width": 6},
            },
        ],
        "layout": {
            "showlegend": False,
            "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
            "scene": axis
            | {
                "zaxis": {"title": {"text": "loss"}},
                "camera": {"eye": {"x": 1.7, "y": -1.7, "z": 0.8}, "center": {"z": -0.15}},
                "aspectmode": "cube",
            },
        },
    }


def losses(rate: float, batch: int, noise: float, epochs: int, against: str) -> dict[str, Any]:
    """Draw the loss with batches of all samples, the chosen number and one, against an axis."""
    runs = {
        f"all {SAMPLES}": (SAMPLES, GREEN),
        f"batch {batch}": (batch, ORANGE),
        "batch 1": (1, BLUE),
    }
    data, said, ends = [], [], []
    for name, (size, colour) in runs.items():
        way = descend(rate, size, noise, epochs)
        # Steps and time differ by a factor of a hundred: use a logarithmic axis, which has no 0.
        at = _thinned(way)[against != EPOCHS :]
        x = [float(f"{value:.4g}") for value in at * _unit(against, size)]
        ends += [x[0], x[-1]]
        data.append(line(name, x, way.loss[at], colour, width=2))
        steps = len(way.seen)
        spent = f"{steps:,} steps in {steps * _unit(TIME, size):.3g} ms"
        said.append(f"{name}: {summary(way)}; {spent}")
    floor = whole(noise).loss(*(np.array(v) for v in fitted(noise))).item()
    ends = [min(ends), max(ends)]
    data.append(line("least possible", ends, [floor] * 2, GREY, dash="dash", width=1.5))
    log = {"type": "log", "dtick": 1}
    x_axis = {} if against == EPOCHS else log
    layout = axes(against, "mean squared error", x_axis=x_axis, y_axis=log)
    return {"data": data, "layout": layout, "note": "\n".join(said)}


def _unit(against: str, batch: int) -> float:
    """Return the length of one step on an axis."""
    per_epoch = len(range(0, SAMPLES, batch))
    return {EPOCHS: 1 / per_epoch, STEPS: 1.0, TIME: 1e3 * step_seconds(batch)}[against]


def summary(way: Descent) -> str:
    """Describe a run in a sentence."""
    if way.diverged:
        return f"diverged in epoch {len(way.by_epoch) - 1}"
    epoch = converged(way.by_epoch)
    end = f"loss {way.loss[-1]:.3g} at w {way.w[-1]:.2f}, b {way.b[-1]:.2f}"
    if epoch is None:
        return f"not converged after {len(way.by_epoch) - 1} epochs: {end}"
    return f"converged in epoch {epoch}, after {epoch * way.per_epoch:,} steps: {end}"


def _last_batch(batch: int, noise: float, epochs: int, seed: int = 0) -> Sums:
    draw = np.random.default_rng(seed)
    order = np.arange(SAMPLES)
    for _ in range(epochs if batch < SAMPLES else 0):
        order = draw.permutation(SAMPLES)
    last = order[range(0, SAMPLES, batch)[-1] :]
    x, y = samples(noise)
    return sums(x[last], y[last], np.array([0]))


def _thinned(way: Descent) -> Any:
    """Choose points on a path, closer together at its beginning, where most happens."""
    last = len(way.w) - 1
    share = np.linspace(0.0, 1.0, POINTS)
    return np.unique(np.round(last * share**2).astype(int))


def _short(values: Array) -> list[float]:
    return np.round(values, 3).tolist()
