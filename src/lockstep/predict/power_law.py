"""The laws a * m**b + c nearest to measured points, for many exponents at once.

At a given exponent a and c come from a straight line, and with the nearest a for each c the weighed
squares that are left over are a parabola in c. So a fit is a search along one number, and all laws
that fit well enough are found without another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

Array = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


class Points(NamedTuple):
    """Measured points. At a given exponent all else has a closed form."""

    m: Array
    y: Array
    w: Array

    def at(self, slopes: Array) -> Parabolas:
        """What is left over, by c, with the nearest a for each c."""
        x = self.m ** -slopes[:, None]
        sxx, sx, sxy = ((self.w * z).sum(1) for z in (x * x, x, x * self.y))
        curvature = self.w.sum() - sx**2 / sxx
        middle = ((self.w * self.y).sum() - sx * sxy / sxx) / curvature
        found = Parabolas(sx, sxx, sxy, curvature, middle, middle)
        # Of the residuals, not of their sums, which would lose all digits where the fit is good.
        law = found.a(middle)[:, None] * x + middle[:, None]
        return found._replace(least=(self.w * (self.y - law) ** 2).sum(1))


class Parabolas(NamedTuple):
    """For each exponent: the weighed squares that are left over, as a parabola in c."""

    sx: Array
    sxx: Array
    sxy: Array
    curvature: Array
    middle: Array
    least: Array

    def a(self, c: Array) -> Array:
        """The nearest a for each c."""
        return (self.sxy - c * self.sx) / self.sxx

    def within(self, c: Array) -> Array:
        """Neither c nor a may be below zero."""
        return numpy.clip(c, 0.0, self.sxy / self.sx)

    def misfit(self) -> Array:
        """Of the nearest law."""
        return self.least + self.curvature * (self.within(self.middle) - self.middle) ** 2

    def outermost(self, slopes: Array, limit: float) -> Array:
        """The laws with the least and the largest c whose misfit keeps the limit."""
        inside = self.misfit() <= limit
        reach = numpy.sqrt(numpy.maximum(limit - self.least, 0.0) / self.curvature)
        ends = [self.within(self.middle - reach), self.within(self.middle + reach)]
        rows = [numpy.stack([self.a(c), slopes, c], 1)[inside] for c in ends]
        return numpy.concatenate(rows)
