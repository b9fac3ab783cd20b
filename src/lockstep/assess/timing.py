"""Is it as fast as it could be here? A pure function of measured times, noise and all."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

NEAR = 0.15
"""A gain this close to the one asked for (of it) may be noise: it is measured again."""
LEAST, MOST = 2, 3
"""Rounds. One says little: a shared machine may be a third slower a few seconds later."""
ROOM = 0.1
"""More of the reference's speed, which is asked for where that makes it faster than one device."""
BUSY = 0.2
"""Share of their time that the grader's programs wait for a CPU, above which times say little."""
CLEAR = 2.0
"""Times as slow as asked: that is not for want of a CPU."""


@dataclass
class Times:
    """Seconds of epochs."""

    single: list[float] = field(default_factory=list)
    """Of the given program on one device."""
    reference: list[float] = field(default_factory=list)
    """Of a program that is right, on all replicas."""
    submission: list[float] = field(default_factory=list)
    rounds: int = 0
    waited: list[float] = field(default_factory=list)
    """Shares of their time that the grader's own programs waited for a CPU, run by run."""

    @property
    def complete(self) -> bool:
        """Whether all three were seen."""
        return bool(self.single and self.reference and self.submission)

    @property
    def gain(self) -> float:
        """How many times as fast as the program on one device."""
        return typical(self.single) / typical(self.submission)

    @property
    def possible(self) -> float:
        """How many times as fast the reference is."""
        return typical(self.single) / typical(self.reference)

    def asked(self, share: float) -> float:
        """The gain that is asked for: a share of what is possible, and no loss where none must be.

        >>> [round(Times([p], [1.0], [1.0]).asked(0.75), 2) for p in (3.0, 1.3, 1.2, 1.0)]
        [2.25, 1.0, 1.0, 0.85]
        """
        return max(share * self.possible, min(1.0, (share + ROOM) * self.possible))


def outcome(times: Times, share: float) -> bool | None:
    """Whether it is fast enough; None: the machine is too busy with other things to say."""
    busy = bool(times.waited) and fmean(times.waited) > BUSY
    reached = times.gain / times.asked(share)
    # For want of a CPU ranks that wait for each other lose more than they could ever win.
    if busy and 1 / CLEAR < reached < 1 + NEAR:
        return None
    return reached >= 1


def typical(seconds: list[float]) -> float:
    """The mean of the faster half: what else a machine does only ever makes an epoch longer.

    >>> typical([1.0, 9.0, 1.2, 1.1])
    1.05
    """
    return fmean(sorted(seconds)[: (len(seconds) + 1) // 2])


def between(appeared: dict[int, float]) -> list[float]:
    """Seconds from one epoch's weights to the next one's: the start does not count.

    >>> between({1: 9.0, 2: 10.0, 3: 11.5})
    [1.0, 1.5]
    """
    return [b - a for a, b in pairwise(appeared[epoch] for epoch in sorted(appeared))]


def decided(times: Times, share: float) -> bool:
    """Whether there were rounds enough: one more where the gain is near the limit."""
    if times.rounds < LEAST:
        return False
    return times.rounds >= MOST or abs(times.gain / times.asked(share) - 1) > NEAR
