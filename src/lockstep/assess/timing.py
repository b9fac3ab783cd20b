"""Decide from noisy times whether a submission is as fast as it could be on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

NEAR = 0.15
"""Relative distance from the required gain within which a result may be noise."""
LEAST, MOST = 2, 3
"""Rounds of timing. One is not enough: a shared machine may be a third slower seconds later."""
ROOM = 0.1
"""Extra share of the reference's speed, required up to the speed of one device."""
BUSY = 0.2
"""Share of time waiting for a CPU above which the times of the grader's programs mean little."""
CLEAR = 2.0
"""A submission this many times too slow does not just lack a CPU."""


@dataclass
class Times:
    """The seconds of each epoch."""

    single: list[float] = field(default_factory=list)
    """Times of the given program on one device."""
    reference: list[float] = field(default_factory=list)
    """Times of the reference on all replicas."""
    submission: list[float] = field(default_factory=list)
    rounds: int = 0
    waited: list[float] = field(default_factory=list)
    """The share of each run that the grader's own program waited for a CPU."""

    @property
    def complete(self) -> bool:
        """Whether there are times of all three programs."""
        return bool(self.single and self.reference and self.submission)

    @property
    def gain(self) -> float:
        """How many times as fast as the given program on one device the submission is."""
        return typical(self.single) / typical(self.submission)

    @property
    def possible(self) -> float:
        """How many times as fast as the given program on one device the reference is."""
        return typical(self.single) / typical(self.reference)

    def asked(self, share: float) -> float:
        """Return the required gain: a share of what is possible, and 1 where that is easy enough.

        >>> [round(Times([p], [1.0], [1.0]).asked(0.75), 2) for p in (3.0, 1.3, 1.2, 1.0)]
        [2.25, 1.0, 1.0, 0.85]
        """
        return max(share * self.possible, min(1.0, (share + ROOM) * self.possible))


def outcome(times: Times, share: float) -> bool | None:
    """Return whether the submission is fast enough; None if the machine is too busy to tell."""
    busy = bool(times.waited) and fmean(times.waited) > BUSY
    reached = times.gain / times.asked(share)
    # Without a free CPU, ranks that wait for each other lose more than they could ever gain.
    if busy and 1 / CLEAR < reached < 1 + NEAR:
        return None
    return reached >= 1


def typical(seconds: list[float]) -> float:
    """Return the mean of the faster half: other work on the machine only makes epochs longer.

    >>> typical([1.0, 9.0, 1.2, 1.1])
    1.05
    """
    return fmean(sorted(seconds)[: (len(seconds) + 1) // 2])


def between(appeared: dict[int, float]) -> list[float]:
    """Return the seconds between the weights of successive epochs; the start does not count.

    >>> between({1: 9.0, 2: 10.0, 3: 11.5})
    [1.0, 1.5]
    """
    return [b - a for a, b in pairwise(appeared[epoch] for epoch in sorted(appeared))]


def decided(times: Times, share: float) -> bool:
    """Return whether there were enough rounds; a gain near the limit needs one more."""
    if times.rounds < LEAST:
        return False
    return times.rounds >= MOST or abs(times.gain / times.asked(share) - 1) > NEAR
