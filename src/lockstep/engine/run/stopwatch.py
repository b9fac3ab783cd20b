"""Measure what the time of a run goes into."""

from __future__ import annotations

import time


class Stopwatch:
    """Seconds spent on each of a few activities, one at a time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.now = "start-up"
        self.since = time.perf_counter()

    def turn_to(self, name: str) -> None:
        """Count the time from here on as `name`."""
        moment = time.perf_counter()
        self.seconds[self.now] = self.seconds.get(self.now, 0.0) + moment - self.since
        self.now, self.since = name, moment

    def total(self) -> float:
        """Return all seconds, without the start-up."""
        return sum(s for name, s in self.seconds.items() if name != "start-up")
