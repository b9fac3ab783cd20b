"""Samples per second, counted from the end of the first step, which also sets things up."""

from __future__ import annotations

from lockstep.data.workers import loader_limits
from lockstep.engine.feed import Feed
from lockstep.engine.run.position import Position
from lockstep.engine.run.stopwatch import Stopwatch


class Throughput:
    """Seconds of training, and samples, since the first step of this process."""

    def __init__(self, clock: Stopwatch, position: Position, feed: Feed) -> None:
        self.clock, self.position, self.feed = clock, position, feed
        self.begun = False
        self.start = (0.0, position.samples)
        self._advised = False

    def begin(self) -> None:
        """Count from here on."""
        self.begun = True
        self.clock.turn_to("training")
        self.start = (self.clock.seconds["training"], self.position.samples)

    def per_second(self) -> float | None:
        """Return samples per second, or None if no step was counted."""
        seconds = self.clock.seconds["training"] - self.start[0]
        counted = self.begun and seconds > 0
        return (self.position.samples - self.start[1]) / seconds if counted else None

    def loader_advice(self, replicas: int, workers: int) -> str | None:
        """Return a warning, once, if the model has waited for its data."""
        if self._advised or not self.begun:
            return None
        self.clock.turn_to("training")
        seconds, samples = self.start
        text = loader_limits(
            self.feed.starved,
            self.clock.seconds["training"] - seconds,
            (self.position.samples - samples) / replicas,
            workers,
        )
        self._advised = text is not None
        return text
