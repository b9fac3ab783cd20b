"""When the replicas agree with each other: often enough to react, rarely enough to cost nothing."""

from __future__ import annotations

import time

from lockstep.engine.step.metrics import Meter, Totals

SECONDS = 0.5
"""Time between two control points."""
MOST_ROUNDS = 10_000
"""The most rounds between two control points: the meter holds no more losses."""


class Control:
    """Control points, where the host waits for the device and the replicas for each other."""

    def __init__(self, start: int, most_rounds: int) -> None:
        """Begin at step `start`; a step takes `most_rounds` rounds or fewer."""
        self.most_steps = max(1, MOST_ROUNDS // most_rounds)
        self.next = 0
        """The number of steps after which the replicas agree next."""
        self.last = (time.perf_counter(), start)

    def agree(self, meter: Meter, done: int, stop: bool) -> Totals:
        """Exchange losses and requests to stop, and plan the next control point."""
        before, steps = self.last
        spent = (time.perf_counter() - before) / max(1, done - steps)
        interval = max(1, min(self.most_steps, int(SECONDS / max(spent, 1e-9))))
        totals = meter.exchange(stop, interval)
        self.last = (time.perf_counter(), done)
        self.next = done + totals.interval
        return totals
