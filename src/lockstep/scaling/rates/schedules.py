"""Learning-rate schedules: functions from progress, 0 (start) to 1 (end), to a factor of the rate.

The command line finds every function here whose first argument is `progress`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Schedule = Callable[[float], float]


def constant(progress: float) -> float:
    """Keep the rate.

    >>> constant(0.7)
    1.0
    """
    return 1.0


def cosine(progress: float, floor: float = 0.0) -> float:
    """Follow half a cosine from 1 to `floor` (Loshchilov & Hutter 2016, without restarts).

    >>> cosine(0.0), round(cosine(0.5), 6), cosine(1.0)
    (1.0, 0.5, 0.0)
    """
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def linear(progress: float, floor: float = 0.0) -> float:
    """Fall in a straight line from 1 to `floor`.

    >>> linear(0.25)
    0.75
    """
    return 1.0 - (1.0 - floor) * progress


def polynomial(progress: float, power: float = 2.0, floor: float = 0.0) -> float:
    """Follow the `power` of a line from 1 to `floor`; 2 is usual with LARS (You et al. 2017).

    >>> polynomial(0.5), polynomial(0.5, power=1.0)
    (0.25, 0.5)
    """
    # Rounding may place the last step past the end.
    return floor + (1.0 - floor) * max(0.0, 1.0 - progress) ** power


def one_cycle(
    progress: float, peak: float = 0.3, start: float = 0.04, floor: float = 4e-6
) -> float:
    """Rise from `start` to 1 at `peak`, fall to `floor`, by half cosines (Smith & Topin 2017).

    >>> [round(one_cycle(p, peak=0.5, start=0.2, floor=0.0), 6) for p in (0.0, 0.25, 0.5, 1.0)]
    [0.2, 0.6, 1.0, 0.0]
    """
    if progress < peak:
        return cosine(1.0 - progress / peak, start)
    return cosine((progress - peak) / (1.0 - peak), floor) if peak < 1.0 else 1.0


def triangle(progress: float, peak: float = 0.2, start: float = 0.0, floor: float = 0.0) -> float:
    """Rise in a line from `start` to 1 at `peak`, then fall in a line to `floor`.

    >>> [round(triangle(p, peak=0.5, floor=0.2), 6) for p in (0.0, 0.25, 0.5, 0.75, 1.0)]
    [0.0, 0.5, 1.0, 0.6, 0.2]
    """
    if progress < peak:
        return start + (1.0 - start) * progress / peak
    return floor + (1.0 - floor) * (1.0 - progress) / (1.0 - peak) if peak < 1.0 else 1.0


def step(progress: float, at: Sequence[float] = (0.3, 0.6, 0.8), factor: float = 0.2) -> float:
    """Multiply by `factor` at each point of `at`.

    >>> step(0.5), round(step(0.7), 6)
    (0.2, 0.04)
    """
    return float(factor ** sum(progress >= point for point in at))


def warmed(schedule: Schedule, share: float, start: float = 0.0) -> Schedule:
    """Return `schedule` with a linear warmup from `start` over the first `share` (Goyal 2017).

    The factor rises towards the value of the schedule, so that the curve has no jump. For a rate
    that was raised N times because there are N replicas, set `start` to 1 / N: the warmup begins at
    the rate of one replica.

    >>> [round(warmed(constant, share=0.5)(p), 6) for p in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.5, 1.0, 1.0]
    """

    def factor(progress: float) -> float:
        ramp = 1.0 if progress >= share else start + (1.0 - start) * progress / share
        return ramp * schedule(progress)

    return factor


def followed(first: Schedule, second: Schedule, at: float) -> Schedule:
    """Follow `first` until the share `at` of the run, then `second`; each goes from 0 to 1.

    >>> half = followed(constant, linear, at=0.5)
    >>> half(0.2), half(0.5), half(0.75)
    (1.0, 1.0, 0.5)
    """
    if not 0.0 < at < 1.0:
        raise ValueError(f"at={at}: give a share of the run between 0 and 1.")

    def factor(progress: float) -> float:
        if progress < at:
            return first(progress / at)
        return second((progress - at) / (1.0 - at))

    return factor
