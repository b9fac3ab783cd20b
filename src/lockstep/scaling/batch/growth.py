"""Decide how many batches each step takes, from the noise of the gradient.

A run is planned with some batch, whose steps are called rounds here. When the noise is large, one
step takes several rounds at once: 2, 4, 8 ..., as many as fit into the noise scale. The rate grows
by AdaScale's gain, and the run ends when it has gained as much as was planned.

All decisions follow from measurements, period by period, so two runs that measure the same take the
same steps. A measurement takes effect two periods later, because data are read ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from lockstep.scaling.noise.estimate import Moments
from lockstep.scaling.rates.adascale import AdaScale

LEAST_PERIOD = 24
"""The fewest steps between two decisions: more than are read ahead."""
PERIODS = 4
"""Decisions in an epoch, if it is long enough."""
LOOKS = 6
"""Measurements in a period: few, because steps that measure are not on the fastest path."""
APART = 9
"""The fewest rounds between two measurements: each costs as much as a round."""
LAG = 2
"""Periods from a measurement to the steps that use it."""


class Stride(NamedTuple):
    """One step of the optimizer."""

    number: int
    """Steps before it."""
    round: int
    """Rounds before it."""
    rounds: int
    gain: float
    """How many steps of one round it is worth: 1 to `rounds`."""
    progress: float
    """The progress of the run in the middle of the step: 0 to 1."""
    looks: bool
    """Whether the noise of the gradient is measured."""
    ends_period: bool
    """Whether a decision follows the step."""
    last: bool


class Growth:
    """The steps of a run whose batch follows the noise scale between two bounds.

    >>> steps = Growth(batch=32, samples=320, epochs=2).strides()
    >>> [(step.round, step.rounds) for step in steps][-1]
    (19, 1)
    """

    def __init__(
        self, *, batch: int, samples: int, epochs: int, least: int = 1, most: int = 1
    ) -> None:
        """Plan `epochs` passes over `samples`, in steps of `least` to `most` rounds."""
        for name, value in (("least", least), ("most", most)):
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name}={value}: give 1, 2, 4, 8 ... times the batch.")
        if least > most:
            raise ValueError(f"least={least} is more than most={most}.")
        self.batch, self.least, self.most = batch, least, most
        self.whole, self.per_epoch = samples // batch, -(-samples // batch)
        self.planned = epochs * self.per_epoch
        self.measured: list[Moments] = []
        """The measurement of each period that is over."""

    @property
    def grows(self) -> bool:
        """Whether a step may take more than one round."""
        return self.most > 1

    def chosen(self, period: int) -> tuple[int, Moments]:
        """Return the rounds of a step in this period, and the moments that they follow from.

        >>> growth = Growth(batch=32, samples=3200, epochs=9, most=16)
        >>> growth.measured.append(Moments(gradient_sqr=1.0, trace=300.0))
        >>> growth.chosen(0)[0], growth.chosen(2)[0]
        (1, 8)
        """
        if period < LAG:
            # Nothing is known yet, and more rounds would gain nothing.
            return 1, _NOTHING
        moments = self.measured[period - LAG]
        gradient_sqr, trace = moments
        if not trace > 0.0:
            return self.least, moments  # no noise, or nothing was measured
        # A gradient that drowns in noise asks for the largest batch.
        batches = trace / gradient_sqr / self.batch if gradient_sqr > 0.0 else math.inf
        return max(self.least, _power_below(batches, self.most)), moments

    def strides(self, start: int = 0) -> Iterator[Stride]:
        """Yield the steps from number `start` on; each is decided when it is asked for."""
        if not self.grows:
            yield from even_strides(self.planned, start)
            return
        number, at, gained = 0, 0, 0.0
        # 72 steps that gain 4/3 each are 96, although their sum in floats is a little less.
        enough = self.planned * (1 - 1e-9)
        period, left, unseen = -1, 0, 0
        while gained < enough:
            if not left:
                period += 1
                most, moments = self.chosen(period)
                left = max(LEAST_PERIOD, -(-self.per_epoch // (PERIODS * most)))
                apart = max(-(-APART // most), -(-left // LOOKS))
            batch = at % self.per_epoch
            # The last batch of an epoch may be smaller: it is a step of its own.
            rounds = _power_below(self.whole - batch, most)
            gain = AdaScale(rounds, self.batch, self.planned).gain(moments) if rounds > 1 else 1.0
            looks = unseen <= 0 and batch < self.whole
            unseen, left = (apart if looks else unseen) - 1, left - 1
            progress = min(1.0, (gained + gain / 2) / self.planned)
            gained += gain
            if number >= start:
                last = gained >= enough
                yield Stride(number, at, rounds, gain, progress, looks, not left, last)
            number, at = number + 1, at + rounds


_NOTHING = Moments(math.nan, math.nan)


def even_strides(planned: int, start: int = 0) -> Iterator[Stride]:
    """Yield the steps of a run of `planned` rounds whose batch does not grow."""
    for number in range(start, planned):
        progress, last = (number + 0.5) / planned, number + 1 == planned
        yield Stride(number, number, 1, 1.0, progress, False, False, last)


def _power_below(value: float, most: int) -> int:
    """Return the largest of 1, 2, 4, 8 ... `most` that is not above `value`, or 1."""
    power = 1
    while 2 * power <= min(value, most):
        power *= 2
    return power
