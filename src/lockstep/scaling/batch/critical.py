"""Steps by batch size: S = Smin (1 + Bcrit / B) (McCandlish et al. 2018, equation 2.11).

A training takes Smin steps with an infinite batch, and twice as many with the critical batch, which
sees twice as many samples as a tiny batch. Bcrit can be fitted to trainings with several batches,
or predicted from the noise scale of one training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy
from scipy.optimize import least_squares


class Tradeoff(NamedTuple):
    """Steps by batch size."""

    least_steps: float
    """Steps with an infinite batch."""
    critical_batch: float
    """Samples of the critical batch."""

    def steps(self, batch: float) -> float:
        """Return the steps to the target.

        >>> Tradeoff(least_steps=100, critical_batch=50).steps(50)
        200.0
        """
        return self.least_steps * (1.0 + self.critical_batch / batch)

    def saved_by_doubling(self, batch: float) -> float:
        """Return the share of the steps that a batch twice as large saves: 0.5 to 0.

        >>> Tradeoff(least_steps=100, critical_batch=50).saved_by_doubling(50)
        0.25
        """
        return 1.0 - self.steps(2.0 * batch) / self.steps(batch)


def fitted(batches: Sequence[float], steps: Sequence[float]) -> Tradeoff:
    """Return the trade-off that fits measured trainings best, in ratios.

    >>> found = fitted([8, 32, 128, 512], [725, 256.25, 139.0625, 109.765625])
    >>> round(found.least_steps, 3), round(found.critical_batch, 3)
    (100.0, 50.0)
    """
    b, s = numpy.asarray(batches, float), numpy.asarray(steps, float)
    if len(b) != len(s) or len(set(b.tolist())) < 2:
        raise ValueError("give the steps of two or more batch sizes, one number for each batch.")
    both = numpy.concatenate([b, s])
    if not (numpy.isfinite(both).all() and (both > 0).all()):
        raise ValueError(
            "batches and steps must be above zero and finite: leave out trainings that never "
            "reached the target."
        )

    # Logarithms of both: their sizes are unknown, and an error counts as a ratio.
    def errors(x: numpy.ndarray) -> numpy.ndarray:
        return x[0] + numpy.log1p(numpy.exp(x[1]) / b) - numpy.log(s)

    start = numpy.array([numpy.log(s.min()), numpy.log(numpy.median(b))])
    ends = ([-numpy.inf, numpy.log(b.min()) - 7.0], [numpy.inf, numpy.log(b.max()) + 7.0])
    least, critical = numpy.exp(least_squares(errors, start, bounds=ends).x)
    return Tradeoff(float(least), float(critical))


def from_noise(noise_scales: Sequence[float], batch: float) -> Tradeoff:
    """Predict the trade-off from the noise scale at each step of a training with `batch`.

    A step of this batch is worth 1 / (1 + noise / batch) steps of an infinite one. These add up to
    Smin, and Bcrit is the mean of the noise scale over them: noisy steps count less.

    >>> from_noise([50.0] * 200, batch=50)
    Tradeoff(least_steps=100.0, critical_batch=50.0)
    """
    noise = numpy.asarray(noise_scales, float)
    if not len(noise) or not (numpy.isfinite(noise).all() and (noise >= 0).all() and batch > 0):
        raise ValueError(
            "give a noise scale for each step, none negative or infinite, and the batch."
        )
    worth = 1.0 / (1.0 + noise / batch)
    least = float(worth.sum())
    return Tradeoff(least, float((worth * noise).sum()) / least)
