"""AdaScale: a learning rate for a larger batch, and a count of what its steps are worth.

A step of the large batch is worth 1 to `scale` steps of the small one, depending on the noise of
the gradient (Johnson et al. 2020). The rate grows by that gain, and the schedule advances by it: a
run ends when it has gained as many steps as the small run would have taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.scaling.noise.estimate import Moments
from lockstep.scaling.rates.rules import adascale_gain
from lockstep.scaling.rates.schedules import Schedule, constant


class AdaScale:
    """Factors of the small batch's rate, computed from the moments of the gradient."""

    def __init__(
        self, scale: float, small_batch: float, steps: float, schedule: Schedule = constant
    ) -> None:
        """Scale a run that was planned with `steps` steps of `small_batch` samples."""
        if not scale >= 1.0:
            raise ValueError(
                f"scale={scale}: the batch must be at least the one it is scaled from."
            )
        for name, value in (("small_batch", small_batch), ("steps", steps)):
            if not value > 0.0:
                raise ValueError(f"{name}={value}: it must be above 0.")
        self.scale, self.small_batch, self.steps = scale, small_batch, steps
        self.schedule = schedule
        self.gained = 0.0
        """Steps of the small batch that the run has gained."""

    @property
    def finished(self) -> bool:
        """Whether the run has gained all its steps."""
        return self.gained >= self.steps

    def gain(self, moments: Moments) -> float:
        """Return what a step is worth now: 1 while nothing is known.

        >>> AdaScale(8, small_batch=32, steps=100).gain(Moments(gradient_sqr=1.0, trace=96.0))
        2.909090909090909
        """
        variance = max(0.0, moments.trace / self.small_batch)
        gradient_sqr = max(0.0, moments.gradient_sqr)
        # Also false for NaN: no step was measured yet, or none whose gradient was finite.
        if not variance + gradient_sqr > 0.0:
            return 1.0
        return adascale_gain(self.scale, variance, gradient_sqr)

    def step(self, moments: Moments) -> float:
        """Count the next step, and return the factor of its rate."""
        gain = self.gain(moments)
        # The middle of the step, so that a schedule that starts at zero does not stand still.
        progress = min(1.0, (self.gained + gain / 2) / self.steps)
        self.gained += gain
        return gain * self.schedule(progress)

    def state_dict(self) -> dict[str, float]:
        """Return what a checkpoint must hold."""
        return {"gained": self.gained}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from a saved state."""
        self.gained = float(state["gained"])


def predicted_steps(
    scale: float,
    progress: Sequence[float],
    variance: Sequence[float],
    gradient_sqr: Sequence[float],
) -> float:
    """Return how many steps of a batch `scale` times as large gain as much as a measured run.

    `progress` is what the run had gained, in steps of the small batch, at each measurement of the
    moments of a small batch's gradient.

    >>> predicted_steps(8, progress=[10, 30], variance=[1.0, 0.0], gradient_sqr=[0.0, 1.0])
    21.25
    """
    steps, before = 0.0, 0.0
    for now, noise, signal in zip(progress, variance, gradient_sqr, strict=True):
        steps += (now - before) / adascale_gain(scale, noise, signal)
        before = now
    return steps
