"""Batch growth: a step takes as many batches as the noise of the gradient makes worth while.

A run is planned with some batch, whose steps are called rounds here. Where the noise is large, one
step takes several rounds at once: 2, 4, 8 ..., as many as the noise scale has batches. The rate
grows by AdaScale's gain, and the run is over when as much was gained as was planned.

Everything follows from what was measured, period by period, so two runs that measure the same take
the same steps. What a period tells is used two periods later: data are read ahead of the training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from lockstep.scaling.noise.estimate import Moments
from lockstep.scaling.rates.adascale import AdaScale

LEAST_PERIOD = 24
"""Steps, at least, between two decisions: more than are read ahead."""
PERIODS = 4
"""Decisions in an epoch, if it is long enough for them."""
LOOKS = 6
"""Measurements in a period: so few that most steps are taken on the fastest path."""
APART = 9
"""Rounds from one measurement to the next, at least: each costs as much as a round."""
LAG = 2
"""Periods from a measurement to the steps that follow it."""


class Stride(NamedTuple):
    """One step of the optimizer."""

    number: int
    """Steps before it."""
    round: int
    """Rounds before it."""
    rounds: int
    gain: float
    """Steps of one round that it is worth: 1 to `rounds`."""
    progress: float
    """Of the run, in the middle of the step: 0 to 1."""
    looks: bool
    """Whether the noise of the gradient is measured."""
    ends_period: bool
    """Whether what was measured is looked at afterwards."""
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
        """`epochs` passes over `samples` were planned; a step takes `least` to `most` rounds."""
        for name, value in (("least", least), ("most", most)):
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name}={value}: give 1, 2, 4, 8 ... times the batch.")
        if least > most:
            raise ValueError(f"least={least} is more than most={most}.")
        self.batch, self.least, self.most = batch, least, most
        self.whole, self.per_epoch = samples // batch, -(-samples // batch)
        self.planned = epochs * self.per_epoch
        self.measured: list[Moments] = []
        """What each period told, once it was over."""

    @property
    def grows(self) -> bool:
        """Whether any step takes more than one round."""
        return self.most > 1

    def chosen(self, period: int) -> tuple[int, Moments]:
        """Rounds of a step in this period, and the moments that they follow from.

        >>> growth = Growth(batch=32, samples=3200, epochs=9, most=16)
        >>> growth.measured.append(Moments(gradient_sqr=1.0, trace=300.0))
        >>> growth.chosen(0)[0], growth.chosen(2)[0]
        (1, 8)
        """
        if period < LAG:
            # More would be taken at no gain.
            return 1, _NOTHING
        moments = self.measured[period - LAG]
        gradient_sqr, trace = moments
        if not trace > 0.0:
            return self.least, moments  # no noise, or nothing was seen
        # A gradient that drowns in noise asks for the largest batch.
        batches = trace / gradient_sqr / self.batch if gradient_sqr > 0.0 else math.inf
        return max(self.least, _power_below(batches, self.most)), moments

    def strides(self, start: int = 0) -> Iterator[Stride]:
        """The steps from number `start` on, each decided when it is asked for."""
        if not self.grows:
            for number in range(start, self.planned):
                progress, last = (number + 0.5) / self.planned, number + 1 == self.planned
                yield Stride(number, number, 1, 1.0, progress, False, False, last)
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


def _power_below(value: float, most: int) -> int:
    """The largest of 1, 2, 4, 8 ... `most` that is not above `value`; at least 1."""
    power = 1
    while 2 * power <= min(value, most):
        power *= 2
    return power
