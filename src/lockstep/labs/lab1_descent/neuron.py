"""The linear neuron: y = w x + b, fitted to 100 noisy samples by gradient descent on batches.

On any batch the squared error is a quadratic of (w, b), so a step needs only five sums over the
batch, and thousands of steps take milliseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SAMPLES, SLOPE, OFFSET = 100, 10.0, 2.0
START = (-5.0, -8.0)
"""The start (w, b) of every descent."""
LOST = 1e12
"""A descent whose loss exceeds this counts as diverged and ends."""
TIMED = 400
"""Steps to time. The fastest quarter counts: other work on the machine only slows steps down."""


@cache
def samples(noise: float, seed: int = 0) -> tuple[Array, Array]:
    """Return (x, y) of all samples; `noise` only scales the same random deviations."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(0.0, 5.0, SAMPLES)
    return x, SLOPE * x + OFFSET + noise * draw.standard_normal(SAMPLES)


@dataclass(frozen=True)
class Sums:
    """The means of x, y, x², xy, y², which determine the mean squared error of batches."""

    x: Array
    y: Array
    xx: Array
    xy: Array
    yy: Array

    def loss(self, w: Array, b: Array) -> Array:
        """Return the mean squared error at (w, b) for each batch."""
        square = w * w * self.xx + b * b + self.yy
        return square + 2.0 * (w * b * self.x - w * self.xy - b * self.y)


def sums(x: Array, y: Array, starts: NDArray[np.int64]) -> Sums:
    """Return the means over batches; each begins at a start and ends before the next."""
    counts = np.diff(np.append(starts, len(x)))
    x_, y_, xx, xy, yy = (np.add.reduceat(v, starts) / counts for v in (x, y, x * x, x * y, y * y))
    return Sums(x_, y_, xx, xy, yy)


def whole(noise: float) -> Sums:
    """Return the sums over all samples."""
    return sums(*samples(noise), np.array([0]))


@dataclass(frozen=True)
class Descent:
    """The path of one run."""

    w: Array
    b: Array
    """Weights before the first step and after each one."""
    loss: Array
    """The loss over all samples at these weights."""
    seen: Array
    """The loss on the batch of each step, before the step."""
    per_epoch: int
    """Steps in an epoch."""
    diverged: bool

    @property
    def by_epoch(self) -> Array:
        """The loss over all samples, at the start and after each epoch."""
        return self.loss[:: self.per_epoch]


@cache
def descend(rate: float, batch: int, noise: float, epochs: int, seed: int = 0) -> Descent:
    """Descend for some epochs, each with a new random order and a smaller last batch."""
    x, y = samples(noise)
    starts = np.arange(0, SAMPLES, batch)
    per_epoch = len(starts)
    draw = np.random.default_rng(seed)
    w, b = START
    ws, bs, seen = [w], [b], []
    lost = False
    for _ in range(epochs):
        order = draw.permutation(SAMPLES) if batch < SAMPLES else np.arange(SAMPLES)
        part = sums(x[order], y[order], starts)
        means = zip(*(v.tolist() for v in vars(part).values()), strict=True)
        for mx, my, mxx, mxy, myy in means:
            seen.append(w * w * mxx + b * b + myy + 2.0 * (w * b * mx - w * mxy - b * my))
            down_w = 2.0 * (w * mxx + b * mx - mxy)
            down_b = 2.0 * (w * mx + b - my)
            w, b = w - rate * down_w, b - rate * down_b
            ws.append(w)
            bs.append(b)
        lost = not abs(w) + abs(b) < LOST**0.5
        if lost:
            break
    way_w, way_b = np.array(ws), np.array(bs)
    return Descent(
        w=way_w,
        b=way_b,
        loss=whole(noise).loss(way_w, way_b),
        seen=np.array(seen),
        per_epoch=per_epoch,
        diverged=lost,
    )


@cache
def step_seconds(batch: int) -> float:
    """Measure the seconds of a step on this machine: read a batch, compute the slope, move."""
    x, y = samples(1.0)
    draw = np.random.default_rng(0)
    w, b = START
    taken = []
    for _ in range(TIMED):
        part = draw.permutation(SAMPLES)[:batch]
        began = time.perf_counter()
        inputs = x[part]
        off = w * inputs + b - y[part]
        down_w, down_b = 2.0 * (off * inputs).mean(), 2.0 * off.mean()
        w, b = w - 1e-3 * down_w, b - 1e-3 * down_b
        taken.append(time.perf_counter() - began)
    return sorted(taken)[TIMED // 4]


def converged(losses: Array, tolerance: float = 0.001) -> int | None:
    """Return the first epoch whose loss differs from the previous by less than this share."""
    change = np.abs(np.diff(losses)) / np.maximum(losses[:-1], 1e-300)
    small = np.flatnonzero(change < tolerance)
    return int(small[0]) + 1 if len(small) else None


def fitted(noise: float) -> tuple[float, float]:
    """Return (w, b) with the least loss on the samples."""
    x, y = samples(noise)
    w, b = np.polyfit(x, y, 1)
    return float(w), float(b)
