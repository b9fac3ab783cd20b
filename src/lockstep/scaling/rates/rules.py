"""Learning-rate rules: the batch grows `scale` times, by which factor does the rate?

All of them keep something equal between a run with the small batch and one with the large: the sum
of the updates over an epoch (linear), their variance (square root), the progress of each step
(AdaScale).
"""

from __future__ import annotations

import math
from typing import NamedTuple


def linear_rule(scale: float) -> float:
    """One step of the large batch moves as far as `scale` steps of the small one (Goyal 2017).

    Holds while the gradient hardly changes over those steps; needs a warmup where it does.

    >>> linear_rule(8)
    8.0
    """
    return _checked(scale)


def sqrt_rule(scale: float) -> float:
    """The variance of an update stays (Krizhevsky 2014, section 5).

    >>> sqrt_rule(4)
    2.0
    """
    return math.sqrt(_checked(scale))


class Legw(NamedTuple):
    """What LEGW changes, as factors."""

    rate: float
    warmup: float
    """Of the warmup's length in epochs: its number of steps stays."""


def legw_rule(scale: float) -> Legw:
    """Linear-epoch gradual warmup: the square-root rule and a longer warmup (You et al. 2019).

    >>> legw_rule(16)
    Legw(rate=4.0, warmup=16.0)
    """
    return Legw(rate=sqrt_rule(scale), warmup=linear_rule(scale))


def adascale_gain(scale: float, variance: float, gradient_sqr: float) -> float:
    """Steps of the small batch that one of the large is worth: 1 to `scale` (Johnson et al. 2020).

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
    """What Adam takes besides the weights; the rate as a factor."""

    rate: float
    betas: tuple[float, float]
    eps: float


def adam_sqrt_rule(
    scale: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> AdamSettings:
    """The square-root rule with the moments' memory kept in samples (Malladi et al. 2022).

    Averages over 1 / (1 - beta) steps become averages over as many samples: 1 - beta grows `scale`
    times. The gradient's noise, and with it the second moment's root, shrinks, and so does eps.

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
