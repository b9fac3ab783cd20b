"""Record how often each scheduler steps, where, and on which value."""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim import lr_scheduler

from lockstep.probes.patching import replaces
from lockstep.probes.recorder import Recorder, place


def install(recorder: Recorder) -> None:
    """Watch all schedulers of torch."""
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    order = count()
    inside = 0

    owners = [
        owner for owner in vars(lr_scheduler).values() if "step" in getattr(owner, "__dict__", ())
    ]

    @replaces("step", *owners)
    # A scheduler steps once while it is made.
    @replaces("__init__ _initial_step", lr_scheduler.LRScheduler)
    def stepped(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if original.__name__ == "step" and not inside:
            if self not in numbers:
                numbers[self] = next(order)
            number = numbers[self]
            given = args[0] if args else kwargs.get("metrics", kwargs.get("epoch"))
            recorder.note(
                "scheduled",
                scheduler=number,
                type=type(self).__name__,
                step=recorder.steps_of.get(id(getattr(self, "optimizer", None)), 0),
                place=place(2),
                metric=_metric(self, given),
                # Accelerate steps it once per rank: schedules count steps of one process.
                per_rank="/accelerate/" in sys._getframe(2).f_code.co_filename,
            )
        inside += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            inside -= 1


def _metric(scheduler: Any, given: Any) -> float | None:
    if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) and given is not None:
        with suppress(TypeError, ValueError):
            return float(given)
    return None
