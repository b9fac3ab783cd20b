"""How far a run has come: steps, samples and epochs."""

from __future__ import annotations

from lockstep.engine.feed import Feed
from lockstep.engine.sampler import Step
from lockstep.scaling.batch.growth import Stride


class Position:
    """The place of a run after its last step."""

    def __init__(self, feed: Feed, max_steps: int | None, done: int, samples: int) -> None:
        """Start after `done` steps over `samples` samples."""
        self.feed, self.done, self.samples = feed, done, samples
        self.grows = feed.growth is not None
        self.steps = feed.planned
        """Steps of the run, as far as that is known."""
        if max_steps is not None:
            self.steps = max_steps if self.grows else min(self.steps, max_steps)
        # A batch that grows takes an unknown number of steps: show those that were gained.
        self.shows_gained = self.grows and max_steps is None
        self.shown, self.epochs = done, 0.0
        self.update(next(feed.strides(done - 1), None) if done else None)

    def take(self, step: Step) -> bool:
        """Count a step; return whether it ends its epoch."""
        self.done = step.number + 1
        self.samples += step.samples
        return step.batch + step.stride.rounds == self.feed.rounds_per_epoch

    def update(self, stride: Stride | None) -> None:
        """Set `epochs` and what a progress bar shows, after the step `stride`."""
        self.shown, self.epochs = self.done, self.samples / self.feed.samples
        if stride is not None:
            self.epochs = (stride.round + stride.rounds) / self.feed.rounds_per_epoch
            if self.shows_gained:
                self.shown = self.steps if stride.last else int(stride.progress * self.steps)

    def epochs_after(self, step: Step) -> float:
        """Return the passes over the data until the end of `step`."""
        return (step.stride.round + step.stride.rounds) / self.feed.rounds_per_epoch
