"""The lines of metrics.jsonl about training, written at control points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from lockstep.engine.run.position import Position
from lockstep.engine.run.stopwatch import Stopwatch
from lockstep.engine.sampler import Step
from lockstep.engine.step.metrics import Totals

LOGS_PER_EPOCH = 20
STEPS_BETWEEN_LOGS = 5
"""The fewest steps between two logs: a log makes the replicas wait for each other."""


class Due(NamedTuple):
    """A step after which a log is due."""

    step: Step
    rate: float
    moment: float


class TrainingLog:
    """Collects the steps after which a log is due, until their losses are known."""

    def __init__(self, clock: Stopwatch, position: Position, rounds_per_epoch: int) -> None:
        self.clock, self.position = clock, position
        self.interval = max(STEPS_BETWEEN_LOGS, rounds_per_epoch // LOGS_PER_EPOCH)
        self.due: list[Due] = []
        self.last = (clock.seconds.get("training", 0.0), position.samples)
        """Seconds of training, and samples, at the last log."""

    def is_due(self, step: Step) -> bool:
        """Tell whether a log should follow `step`."""
        return (step.batch + step.stride.rounds) // self.interval > step.batch // self.interval

    def note(self, step: Step, rate: float) -> None:
        """Keep a step until its loss is known."""
        self.clock.turn_to("training")
        self.due.append(Due(step, rate, self.clock.total()))

    def lines(self, totals: Totals, noise: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a line for each step that is due, up to the first whose loss is not finite."""
        self.clock.turn_to("training")
        training, samples = self.clock.seconds["training"], self.position.samples
        seconds, count = training - self.last[0], samples - self.last[1]
        self.last = (training, samples)
        due, self.due = self.due, []
        for entry, loss in zip(due, totals.losses, strict=True):
            step, rate, moment = entry
            if totals.bad_step is not None and step.number >= totals.bad_step:
                break
            yield {
                "kind": "train",
                "step": step.number + 1,
                "epoch": self.position.epochs_after(step),
                "seconds": moment,
                "loss": loss,
                "learning_rate": rate,
                "samples_per_second": count / seconds if seconds > 0 else None,
                **({"global_batch": step.samples} if self.position.grows else {}),
                # The noise was measured now, so it belongs to the last line.
                **(noise if entry is due[-1] else {}),
            }
