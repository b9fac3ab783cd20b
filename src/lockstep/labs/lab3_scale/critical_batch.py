"""Draw the noise scale and the critical batch: measured, fitted and predicted."""

from __future__ import annotations

from statistics import median

import numpy

from lockstep.labs.lab3_scale.noise_scale import Noises, swept
from lockstep.labs.lab3_scale.rate_grid import Explored
from lockstep.labs.shared.drawing import Figure, axes, dots, line, ticks
from lockstep.report.page import BLUE, GREEN, GREY, ORANGE, RED
from lockstep.scaling.batch.critical import Tradeoff


def along(noises: Noises) -> Figure:
    """Draw the noise scale of every seed, step by step."""
    data = []
    for source, colour in (("shards", BLUE), ("steps", ORANGE)):
        for number, curve in enumerate(getattr(noises, source)):
            trace = line(f"by {source}", range(1, len(curve) + 1), curve, colour, width=1.8)
            data.append(trace | {"showlegend": number == 0, "opacity": 0.8})
    longest = max(len(curve) for curve in noises.shards)
    data.append(line("batch", [1, longest], [noises.batch] * 2, GREY, dash="dot", width=1.5))
    layout = axes(
        f"optimizer steps at batch {noises.batch}",
        "noise scale (samples)",
        y_axis={"type": "log", "dtick": 1},
    )
    return {"data": data, "layout": layout}


def predicted(noises: Noises, target: float) -> float:
    """Return the critical batch that the noise predicts: the median over the seeds."""
    return median(noises.critical(target))


def efficiency(batch: float, critical: float) -> float:
    """Return the fewest samples to a target as a share of the samples with this batch.

    >>> efficiency(50, critical=50)
    0.5
    """
    return 1.0 / (1.0 + batch / critical)


def figure(found: Explored, noises: Noises, *, target: float, batch: int) -> Figure:
    """Draw the steps to a loss by batch size, and the samples in these steps."""
    fit = swept(found, target)
    if fit is None:
        # A picture of an easier target would mislead.
        return {"data": [], "layout": {}, "note": f"Too few runs reached a loss of {target}."}
    curve, points = fit
    shown = [float(f"{b:.4g}") for b in numpy.geomspace(4, 1024, 65)]
    seen = predicted(noises, target)
    # The prediction knows one training run: its batch and its number of steps.
    known = Tradeoff(1.0, seen)
    scale = _steps_taken(noises, target) / known.steps(noises.batch)
    x, steps = points["batches"], points["steps"]
    here = curve.steps(batch)
    data = [
        dots("measured", x, steps, BLUE),
        line("fit", shown, [curve.steps(b) for b in shown], BLUE),
        line("by noise", shown, [scale * known.steps(b) for b in shown], RED, dash="dash"),
        dots("chosen", [batch], [here], ORANGE, symbol="diamond", size=12),
        dots("", x, [b * s for b, s in zip(x, steps, strict=True)], GREEN)
        | {"yaxis": "y2", "showlegend": False},
        line("samples", shown, [b * curve.steps(b) for b in shown], GREEN) | {"yaxis": "y2"},
        dots("", [batch], [batch * here], ORANGE, symbol="diamond", size=12)
        | {"yaxis": "y2", "showlegend": False},
    ]
    layout = axes(
        "batch size (samples)",
        "steps",
        x_axis=ticks([*found.batches]),
        y_axis=ticks((5, 10, 20, 50, 100, 200, 500)) | {"domain": [0.42, 1]},
    )
    layout["xaxis"]["anchor"] = "y2"
    samples = {"title": {"text": "samples"}, "domain": [0, 0.36]}
    layout["yaxis2"] = ticks((300, 1000, 3000, 10_000, 30_000), ",") | samples
    return {"data": data, "layout": layout, "note": _note(curve, seen, target, batch)}


def _steps_taken(noises: Noises, target: float) -> float:
    """Return the steps of the watched training run."""
    lengths = [
        next((n for n, loss in enumerate(losses) if loss <= target), len(losses))
        for losses in noises.loss
    ]
    return float(max(1, median(lengths)))


def _note(curve: Tradeoff, seen: float, target: float, batch: int) -> str:
    steps = curve.steps(batch)
    return (
        f"To a test loss of {target}: critical batch {curve.critical_batch:.0f} by the sweep, "
        f"{seen:.0f} by the noise of one training run.\n"
        f"At batch {batch}: {steps:.0f} steps (never fewer than {curve.least_steps:.0f}), "
        f"{batch * steps:,.0f} samples; "
        f"tiny batches need {efficiency(batch, curve.critical_batch):.0%} of the samples. "
        f"Doubling the batch saves {curve.saved_by_doubling(batch):.0%} of the steps."
    )
