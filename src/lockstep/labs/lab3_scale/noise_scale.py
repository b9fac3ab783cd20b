"""Measure the noise scale of a training run, and compare it with the critical batch of the grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy
import torch
from torch.nn.functional import cross_entropy

from lockstep.engine.sampler import GlobalOrder
from lockstep.labs.lab3_scale.model_stack import alone
from lockstep.labs.lab3_scale.rate_grid import SIZES, Explored
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.digits import Samples, digits
from lockstep.labs.shared.drawing import Figure, axes, dots, line, ticks
from lockstep.report.page import BLUE, GREEN, GREY, ORANGE, RED
from lockstep.scaling.batch.critical import Tradeoff, fitted, from_noise
from lockstep.scaling.noise import NoiseScale, ShardNoise, StepNoise

BATCH, SHARDS, SEEDS = 64, 4, 3
TARGETS = (0.8, 0.7, 0.6, 0.5, 0.45, 0.4, 0.35)
"""Test losses at which a training run counts as done."""
HARDEST = TARGETS[-1]
"""The noise is measured until this target."""


@dataclass(frozen=True, kw_only=True)
class Noises:
    """The smoothed noise scale after each step, by seed."""

    batch: int
    rate: float
    """The best rate of the grid for this batch, without momentum."""
    shards: list[list[float]]
    """The noise scale from comparing the shards of a batch."""
    steps: list[list[float]]
    """The noise scale from comparing a step with the next."""
    loss: list[list[float]]
    """The test loss before each step, by seed."""

    def critical(self, target: float, source: str = "shards") -> list[float]:
        """Return the critical batch that each seed's noise predicts for training to this loss."""
        found = []
        for curve, losses in zip(getattr(self, source), self.loss, strict=True):
            length = next((n for n, loss in enumerate(losses) if loss <= target), len(losses))
            found.append(from_noise(curve[: max(2, length)], self.batch).critical_batch)
        return found


def measure(report: Report, explored: Explored, seeds: int = SEEDS) -> Noises:
    """Train single models at one batch size, and measure the noise of their gradients."""
    torch.set_num_threads(1)
    samples = digits("cpu")
    # Use the best rate to the hardest target: the noise predicts the whole run.
    rate = quickest(explored, HARDEST)[explored.batches.index(BATCH)][1] or 0.1
    curves: dict[str, list[list[float]]] = {"shards": [], "steps": []}
    losses = []
    for seed in range(seeds):
        for place, source in enumerate(curves):
            report((2 * seed + place) / (2 * seeds), f"seed {seed}, by {source}")
            noise, loss = _along(samples, rate, seed, source)
            curves[source].append(noise)
        losses.append(loss)
    return Noises(batch=BATCH, rate=rate, **curves, loss=losses)


def _along(
    samples: Samples, rate: float, seed: int, source: str
) -> tuple[list[float], list[float]]:
    """Return the noise scale after each step and the loss before it, until the hardest target."""
    model = alone(SIZES, seed)
    weights = list(model.parameters())
    noise = NoiseScale(memory=20.0)
    shards = ShardNoise(weights, BATCH, SHARDS, noise)
    pairs = StepNoise(weights, BATCH, noise)
    order = GlobalOrder(len(samples), BATCH, seed)
    curve: list[float] = []
    losses: list[float] = []
    per_epoch = len(samples) // BATCH
    while len(losses) < 40 * per_epoch:
        with torch.no_grad():
            losses.append(cross_entropy(model(samples.test_inputs), samples.test_targets).item())
        if losses[-1] <= HARDEST:
            break
        chosen = order.batch(*divmod(len(losses) - 1, per_epoch))
        parts = chosen.chunk(SHARDS) if source == "shards" else (chosen,)
        for number, part in enumerate(parts):
            loss = cross_entropy(model(samples.inputs[part]), samples.targets[part])
            (loss / len(parts)).backward()
            if source == "shards":
                shards.after(number)
        if source == "steps":
            pairs.step()
        (shards if source == "shards" else pairs).hand_over()
        curve.append(noise.estimate().value)
        with torch.no_grad():
            for weight in weights:
                assert weight.grad is not None
                weight.sub_(weight.grad, alpha=rate)
                weight.grad = None
    usable = [value for value in curve if math.isfinite(value)] or [float(BATCH)]
    # The first steps have no estimate yet: use the first one that does.
    tidied = [value if math.isfinite(value) else usable[0] for value in curve]
    return [round(value, 3) for value in tidied], [round(value, 4) for value in losses]


def quickest(found: Explored, target: float) -> list[tuple[float | None, float | None]]:
    """Return (steps to a loss, rate) at the best rate of each batch size; None if never reached.

    This uses runs without momentum, which the trade-off does not model, and the median seed.
    """
    best: list[tuple[float | None, float | None]] = []
    plain = found.momenta.index(0.0)
    for steps, losses in zip(found.steps, found.losses, strict=True):
        times = []
        for place, rate in enumerate(found.rates):
            each = [_first(steps, losses[:, plain, place, s], target) for s in range(found.seeds)]
            times.append((median(each), rate))
        quick, rate = min(times)
        best.append((quick, rate) if math.isfinite(quick) else (None, None))
    return best


def _first(steps: Sequence[int], losses: numpy.ndarray, target: float) -> float:
    """Return the step at which a curve crosses the target, by interpolation."""
    before: tuple[float, float] | None = None
    for step, loss in zip(steps, losses.tolist(), strict=True):
        if not math.isfinite(loss):
            return math.inf
        if loss <= target:
            if before is None:
                return float(step)
            share = math.log(before[1] / target) / math.log(before[1] / loss)
            return before[0] + share * (step - before[0])
        before = (float(step), loss)
    return math.inf


def swept(found: Explored, target: float) -> tuple[Tradeoff, dict[str, Any]] | None:
    """Fit the trade-off to the grid, and return it with its points; None if they are too few."""
    pairs = [
        (batch, steps)
        for batch, (steps, _) in zip(found.batches, quickest(found, target), strict=True)
        if steps is not None
    ]
    if len(pairs) < 3:
        return None
    batches, steps = [b for b, _ in pairs], [s for _, s in pairs]
    return fitted(batches, steps), {"batches": batches, "steps": steps}


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
    seen = median(noises.critical(target))
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
