"""Fit power laws a * m**b + c to measured points, for many exponents at once.

For a given exponent, a and c follow from a straight line, and with the best a for each c the sum of
weighted squared residuals is a parabola in c. So a fit searches along one number, and finds all
laws that fit well enough on the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

Array = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


class Points(NamedTuple):
    """Measured points. For a given exponent all else has a closed form."""

    m: Array
    y: Array
    w: Array

    def at(self, slopes: Array) -> Parabolas:
        """Return the squared residuals as parabolas in c, with the best a for each c."""
        x = self.m ** -slopes[:, None]
        sxx, sx, sxy = ((self.w * z).sum(1) for z in (x * x, x, x * self.y))
        curvature = self.w.sum() - sx**2 / sxx
        middle = ((self.w * self.y).sum() - sx * sxy / sxx) / curvature
        found = Parabolas(sx, sxx, sxy, curvature, middle, middle)
        # From the residuals, not from their sums, which lose all digits where the fit is good.
        law = found.a(middle)[:, None] * x + middle[:, None]
        return found._replace(least=(self.w * (self.y - law) ** 2).sum(1))


class Parabolas(NamedTuple):
    """The sum of weighted squared residuals for each exponent, as a parabola in c."""

    sx: Array
    sxx: Array
    sxy: Array
    curvature: Array
    middle: Array
    least: Array

    def a(self, c: Array) -> Array:
        """Return the best a for each c."""
        return (self.sxy - c * self.sx) / self.sxx

    def within(self, c: Array) -> Array:
        """Limit c so that neither c nor a is below zero."""
        return numpy.clip(c, 0.0, self.sxy / self.sx)

    def misfit(self) -> Array:
        """Return the misfit of the best law for each exponent."""
        return self.least + self.curvature * (self.within(self.middle) - self.middle) ** 2

    def outermost(self, slopes: Array, limit: float) -> Array:
        """Return the laws with the least and the largest c whose misfit is within the limit."""
        inside = self.misfit() <= limit
        reach = numpy.sqrt(numpy.maximum(limit - self.least, 0.0) / self.curvature)
        ends = [self.within(self.middle - reach), self.within(self.middle + reach)]
        rows = [numpy.stack([self.a(c), slopes, c], 1)[inside] for c in ends]
        return numpy.concatenate(rows)
