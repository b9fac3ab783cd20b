"""Learning curves: error = a * m**b + c for m samples, and how much data a target needs.

Hestness et al. 2017 saw b between -0.07 and -0.35 on translation, language, images and speech; the
architecture changed a, but hardly b. c is the error that no amount of data removes.

The interval holds every law that the points do not rule out. Few points rule out little: a curve
that is still steep may end at any floor. So the best law alone promises too much, and the less data
it saw, the more: Mahmood et al. 2022 found that fits of a tenth of the data under-estimate how much
more is needed. Plan with the high end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy
from scipy.optimize import minimize_scalar
from scipy.special import stdtrit

from lockstep.errors import UsageError
from lockstep.predict.power_law import Array, Points

LEAST_POINTS = 4
"""The fewest sizes: a law has three numbers, and one more shows how well it fits."""
FLATTEST, STEEPEST = 0.01, 4.0
"""Bounds of -b; published values lie far inside."""
FLAT = 1e-9
"""A slope that rounding alone explains."""
GRID = 120
"""How many exponents are tried at once."""
ZOOMS = 3


class PowerLaw(NamedTuple):
    """error = a * m**b + c."""

    a: float
    b: float
    """Below zero."""
    c: float
    """The floor."""

    def error(self, samples: float) -> float:
        """Return the error after training on `samples` samples.

        >>> PowerLaw(a=2.0, b=-0.5, c=0.1).error(400)
        0.2
        """
        return float(self.a * samples**self.b + self.c)

    def needed(self, target: float) -> float:
        """Return the samples for an error of `target`: infinite at the floor and below.

        >>> PowerLaw(a=2.0, b=-0.5, c=0.1).needed(0.2)
        400.0
        >>> PowerLaw(a=2.0, b=-0.5, c=0.1).needed(0.1)
        inf
        """
        if target <= self.c:
            return math.inf
        # By logarithms: a flat curve's power overflows.
        log = math.log((target - self.c) / self.a) / self.b if self.a > 0 else -math.inf
        return round(math.exp(log), 9) if log < 700 else math.inf


class Range(NamedTuple):
    """A prediction with its interval."""

    low: float
    best: float
    high: float
    """Infinite if the points do not show that the target can be reached."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """The best law, and all other laws that the points allow."""

    law: PowerLaw
    """The law that fits best."""
    level: float
    """How often an interval holds the truth, if the truth is a power law."""
    points: int
    allowed: Array
    """Rows of a, b, c: the outermost laws for each exponent. All others lie between them."""

    def error(self, samples: float) -> Range:
        """Return the error after training on `samples` samples."""
        (low,), (high,) = self.band([samples])
        best = self.law.error(samples)
        # Up to rounding, the best law is one of those allowed.
        return Range(min(float(low), best), best, max(float(high), best))

    def band(self, samples: Sequence[float]) -> tuple[Array, Array]:
        """Return the least and the largest error for each number of samples."""
        a, b, c = self.allowed.T[:, :, None]
        errors = a * numpy.asarray(samples, float) ** b + c
        return errors.min(0), errors.max(0)

    def needed(self, target: float) -> Range:
        """Return the samples for an error of `target`."""
        if not (math.isfinite(target) and target > 0):
            raise UsageError(f"a target error of {target:g}: give a number above 0.")
        found = [PowerLaw(*row).needed(target) for row in self.allowed.tolist()]
        return Range(min(found), self.law.needed(target), max(found))


def fit(
    samples: Sequence[float],
    errors: Sequence[float],
    spreads: Sequence[float] | None = None,
    level: float = 0.9,
) -> Fit:
    """Fit a power law to `errors` that were measured after training on `samples` samples.

    `spreads` are the standard errors of the points, if they are known: they weight the points, and
    the interval is never narrower than they allow. Otherwise the ratio to the curve weights them.

    >>> found = fit([100, 200, 400, 800], [0.3, 0.2414213562, 0.2, 0.1707106781])
    >>> [round(number, 3) for number in found.law]
    [2.0, -0.5, 0.1]
    """
    m, y, s = _checked(samples, errors, spreads, level)
    # In units of the middle size: powers of plain sizes differ by many orders of magnitude.
    unit = math.exp(float(numpy.log(m).mean()))
    points = Points(m / unit, y, 1.0 / s**2)
    slopes = numpy.geomspace(FLATTEST, STEEPEST, GRID)
    near = int(points.at(slopes).misfit().argmin())
    ends = slopes[[max(0, near - 1), min(GRID - 1, near + 1)]]
    found = minimize_scalar(
        lambda slope: float(points.at(numpy.array([slope])).misfit()[0]),
        bounds=(float(ends[0]), float(ends[1])),
        method="bounded",
        options={"xatol": 1e-10},
    )
    least, free = float(found.fun), len(m) - 3
    noise = least / free if spreads is None else max(1.0, least / free)
    limit = least + noise * float(stdtrit(free, 0.5 + level / 2)) ** 2
    slope = numpy.array([found.x])
    nearest = points.at(slope)
    c = nearest.within(nearest.middle)
    laws = _allowed(points, limit, numpy.stack([nearest.a(c), slope, c], 1))
    laws[:, 0] *= unit ** laws[:, 1]
    laws[:, 1] *= -1.0
    law = PowerLaw(*(float(number) for number in laws[0]))
    return Fit(law=law, level=level, points=len(m), allowed=laws)


def _allowed(points: Points, limit: float, best: Array) -> Array:
    """Return the laws within the limit, on a grid of exponents that closes in on them."""
    low, high = FLATTEST, STEEPEST
    laws = best
    for _ in range(ZOOMS):
        slopes = numpy.geomspace(low, high, GRID)
        laws = numpy.concatenate([best, points.at(slopes).outermost(slopes, limit)])
        gap = slopes[1] / slopes[0]
        low = max(FLATTEST, float(laws[:, 1].min()) / gap)
        high = min(STEEPEST, float(laws[:, 1].max()) * gap)
    return laws


def _checked(
    samples: Sequence[float],
    errors: Sequence[float],
    spreads: Sequence[float] | None,
    level: float,
) -> tuple[Array, Array, Array]:
    m, y = numpy.asarray(samples, float), numpy.asarray(errors, float)
    s = y if spreads is None else numpy.asarray(spreads, float)
    if not (m.ndim == 1 and m.shape == y.shape == s.shape):
        raise UsageError(
            f"{m.size} sizes, {y.size} errors and {s.size} spreads: give one of each per point."
        )
    for name, values in (("sizes", m), ("errors", y), ("spreads", s)):
        if not (numpy.isfinite(values).all() and (values > 0).all()):
            raise UsageError(
                f"the {name} of a learning curve must be above 0 and finite, these are "
                f"{', '.join(f'{v:g}' for v in values)}. Leave the odd points out."
            )
    if not 0 < level < 1:
        raise UsageError(f"level {level:g}: give a share between 0 and 1, such as 0.9.")
    if (different := len(set(m.tolist()))) < LEAST_POINTS:
        raise UsageError(
            f"a learning curve of {different} sizes: three numbers are fitted, so it takes "
            f"{LEAST_POINTS} sizes or more. Train on more subsets, each twice as large as the last."
        )
    trend = numpy.polyfit(numpy.log(m), numpy.log(y), 1)[0]
    if trend > -FLAT:
        raise UsageError(
            f"the error does not fall with more data: it goes from {y[m.argmin()]:g} at "
            f"{m.min():g} samples to {y[m.argmax()]:g} at {m.max():g}. Either it is at its floor "
            "already, or the training is too short or too noisy: repeat it over more seeds."
        )
    order = numpy.argsort(m, kind="stable")
    return m[order], y[order], s[order]
