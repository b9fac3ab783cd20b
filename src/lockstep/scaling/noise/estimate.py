"""Estimate the gradient noise scale: the batch size beyond which growth stops paying off.

A gradient over B samples is the true one, G, plus noise whose covariance is Sigma / B. Its squared
length is |G|**2 + tr(Sigma) / B in the mean: two batch sizes give both unknowns. Their ratio
tr(Sigma) / |G|**2 is the batch at which noise and signal are equal.

Both estimates are unbiased but scatter widely, the first even below zero. They are smoothed
separately and then divided: the mean of ratios would be biased (McCandlish et al. 2018).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import stdtrit


class Moments(NamedTuple):
    """Moments of a gradient, estimated from two batch sizes."""

    gradient_sqr: float
    """Squared length of the true gradient."""
    trace: float
    """Trace of the covariance of one sample's gradient."""


def moments(small_sqr: float, big_sqr: float, small: float, big: float) -> Moments:
    """Return unbiased moments from squared lengths of gradients over `small` and `big` samples.

    >>> moments(small_sqr=5.0, big_sqr=2.0, small=1, big=4)
    Moments(gradient_sqr=1.0, trace=4.0)
    """
    if not 0 < small < big:
        raise ValueError(
            f"batches of {small:g} and {big:g} samples tell nothing about noise: give two sizes, "
            "the smaller first."
        )
    return Moments(
        gradient_sqr=(big * big_sqr - small * small_sqr) / (big - small),
        trace=(small_sqr - big_sqr) / (1.0 / small - 1.0 / big),
    )


class Estimate(NamedTuple):
    """The noise scale in samples, with the ends of its confidence interval."""

    value: float
    """Infinite if the noise hides the gradient; NaN if there was no step."""
    low: float
    high: float
    """Infinite if a gradient of length zero would explain the measurements."""
    moments: Moments
    steps: int
    """Steps that were counted."""
    skipped: int
    """Steps whose gradient was not finite."""


class NoiseScale:
    """Averages the moments of steps, the newest most, and returns their ratio.

    `memory` is the number of steps that the average reaches back; if infinite, all count the same.
    """

    def __init__(self, memory: float = 100.0, confidence: float = 0.95) -> None:
        if not memory > 1.0:
            raise ValueError(f"memory={memory}: an average needs more than one step.")
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence={confidence}: give a share such as 0.95.")
        self.memory, self.confidence = memory, confidence
        self.steps = self.skipped = 0
        # Sums of the weights and of their squares; means; sums of squared deviations.
        self._weight = self._weight_sqr = 0.0
        self._g = self._s = 0.0
        self._gg = self._ss = self._gs = 0.0

    def see(self, seen: Moments) -> None:
        """Count the moments of one step; leave out a step that was not finite."""
        g, s = seen
        if not (math.isfinite(g) and math.isfinite(s)):
            self.skipped += 1
            return
        self.steps += 1
        keep = 1.0 - 1.0 / self.memory
        self._weight = keep * self._weight + 1.0
        self._weight_sqr = keep * keep * self._weight_sqr + 1.0
        off_g, off_s = g - self._g, s - self._s
        self._g += off_g / self._weight
        self._s += off_s / self._weight
        self._gg = keep * self._gg + off_g * (g - self._g)
        self._ss = keep * self._ss + off_s * (s - self._s)
        self._gs = keep * self._gs + off_g * (s - self._s)

    def estimate(self) -> Estimate:
        """Return the noise scale.

        >>> noise = NoiseScale()
        >>> for _ in range(3):
        ...     noise.see(Moments(gradient_sqr=2.0, trace=100.0))
        >>> noise.estimate().value
        50.0
        """
        low, high = self._interval()
        return Estimate(
            value=_ratio(self._s, self._g) if self.steps else math.nan,
            low=low,
            high=high,
            moments=Moments(self._g, self._s),
            steps=self.steps,
            skipped=self.skipped,
        )

    def state_dict(self) -> dict[str, float]:
        """Return what a checkpoint must hold."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from a saved state."""
        vars(self).update(state)

    def _interval(self) -> tuple[float, float]:
        """Return the interval of the ratio (Fieller 1954), without dividing by what may be zero."""
        if self.steps < 2:
            return 0.0, math.inf
        effective = self._weight**2 / self._weight_sqr
        # The variance of a weighted mean, from the weighted deviations.
        per = 1.0 / (self._weight * (effective - 1.0))
        quantile = float(stdtrit(effective - 1.0, 0.5 + 0.5 * self.confidence)) ** 2
        g, s = self._g, self._s
        gg, ss, gs = (quantile * per * v for v in (self._gg, self._ss, self._gs))
        # All R with (s - R g)**2 <= t**2 Var(s - R g): a quadratic inequality in R.
        a, b, c = g * g - gg, g * s - gs, s * s - ss
        root = math.sqrt(max(0.0, b * b - a * c))
        if a > 0.0:
            return max(0.0, (b - root) / a), max(0.0, (b + root) / a)
        # The gradient may be zero: no upper end. There is a lower end if the noise is not zero.
        return (c / (b + root) if c > 0.0 and b + root > 0.0 else 0.0), math.inf


def _ratio(trace: float, gradient_sqr: float) -> float:
    if trace <= 0.0:
        return math.nan if gradient_sqr <= 0.0 else 0.0
    return trace / gradient_sqr if gradient_sqr > 0.0 else math.inf
