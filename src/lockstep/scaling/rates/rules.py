"""Learning-rate rules: the factor of the rate for a batch that is `scale` times as large.

Each rule keeps something equal between the small and the large batch: the sum of the updates over
an epoch (linear), their variance (square root), or the progress of each step (AdaScale).
"""

from __future__ import annotations

import math
from typing import NamedTuple


def linear_rule(scale: float) -> float:
    """Let one step of the large batch move as far as `scale` steps of the small one (Goyal 2017).

    This holds while the gradient hardly changes over those steps. Where it changes, use a warmup.

    >>> linear_rule(8)
    8.0
    """
    return _checked(scale)


def sqrt_rule(scale: float) -> float:
    """Keep the variance of an update (Krizhevsky 2014, section 5).

    >>> sqrt_rule(4)
    2.0
    """
    return math.sqrt(_checked(scale))


class Legw(NamedTuple):
    """Factors of what LEGW changes."""

    rate: float
    warmup: float
    """The factor of the warmup's length in epochs; its number of steps stays."""


def legw_rule(scale: float) -> Legw:
    """Use the square-root rule and a longer warmup: linear-epoch gradual warmup (You et al. 2019).

    >>> legw_rule(16)
    Legw(rate=4.0, warmup=16.0)
    """
    return Legw(rate=sqrt_rule(scale), warmup=linear_rule(scale))


def adascale_gain(scale: float, variance: float, gradient_sqr: float) -> float:
    """Return how many small steps a large one is worth: 1 to `scale` (Johnson et al. 2020).

    `variance` is the trace of the covariance of a small batch's gradient, `gradient_sqr` the
    squared length of its mean. The gain is also the factor of the rate.

    >>> adascale_gain(8, variance=1.0, gradient_sqr=0.0), adascale_gain(8, 0.0, 1.0)
    (8.0, 1.0)
    >>> round(adascale_gain(8, variance=3.0, gradient_sqr=1.0), 3)
    2.909
    """
    _checked(scale)
    for name, value in (("variance", variance), ("gradient_sqr", gradient_sqr)):
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{name}={value}: a sum of squares is finite and not negative.")
    total = variance + gradient_sqr
    if total == 0.0:
        raise ValueError("variance and gradient_sqr are both 0: a zero gradient has no gain.")
    # Shares of the total first: sums of squares may be too small to be divided.
    return 1.0 / (variance / total / scale + gradient_sqr / total)


class AdamSettings(NamedTuple):
    """Adam's settings; the rate is a factor."""

    rate: float
    betas: tuple[float, float]
    eps: float


def adam_sqrt_rule(
    scale: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> AdamSettings:
    """Use the square-root rule, and keep the moments' memory in samples (Malladi et al. 2022).

    An average over 1 / (1 - beta) steps becomes one over as many samples: 1 - beta grows `scale`
    times. The gradient's noise shrinks, and with it the root of the second moment and eps.

    >>> adam_sqrt_rule(4, betas=(0.75, 0.875), eps=1e-8)
    AdamSettings(rate=2.0, betas=(0.0, 0.5), eps=5e-09)
    """
    _checked(scale)
    for beta in betas:
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"betas={betas}: both must be at least 0 and below 1.")
        if scale * (1.0 - beta) > 1.0:
            largest = 1.0 / (1.0 - max(0.0, min(betas)))
            raise ValueError(
                f"scale={scale:g} is too much for a beta of {beta:g}: it would remember less than "
                f"one step. The rule holds up to {largest:.3g} times the batch."
            )
    first, second = (max(0.0, 1.0 - scale * (1.0 - beta)) for beta in betas)
    return AdamSettings(rate=math.sqrt(scale), betas=(first, second), eps=eps / math.sqrt(scale))


def _checked(scale: float) -> float:
    if not 0.0 < scale < math.inf:
        raise ValueError(
            f"scale={scale}: give the large batch divided by the small one, such as 8.0."
        )
    return float(scale)
