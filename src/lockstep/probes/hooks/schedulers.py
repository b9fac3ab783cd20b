"""Record how often each scheduler steps, where, and on which value."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim import lr_scheduler

from lockstep.probes.recorder import Recorder, place


def install(recorder: Recorder) -> None:
    """Watch all schedulers of torch."""
    numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    inside = 0

    def watched(original: Any, counts: bool) -> Any:
        @wraps(original)
        def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if counts and not inside:
                number = numbers.setdefault(self, len(numbers))
                given = args[0] if args else kwargs.get("metrics", kwargs.get("epoch"))
                recorder.note(
                    "scheduled",
                    scheduler=number,
                    type=type(self).__name__,
                    step=recorder.steps_of.get(id(getattr(self, "optimizer", None)), 0),
                    place=place(2),
                    metric=_metric(self, given),
                    # Accelerate steps it once per rank: schedules count steps of one process.
                    per_rank="/accelerate/" in sys._getframe(1).f_code.co_filename,
                )
            inside += 1
            try:
                return original(self, *args, **kwargs)
            finally:
                inside -= 1

        return stepped

    for owner in vars(lr_scheduler).values():
        if isinstance(owner, type) and "step" in vars(owner) and owner.__name__ != "SWALR":
            setattr(owner, "step", watched(vars(owner)["step"], counts=True))  # noqa: B010
    # A scheduler steps once while it is made.
    base = lr_scheduler.LRScheduler
    base.__init__ = watched(base.__init__, counts=False)  # type: ignore[method-assign]
    base._initial_step = watched(base._initial_step, counts=False)  # type: ignore[method-assign]


def _metric(scheduler: Any, given: Any) -> float | None:
    if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) and given is not None:
        try:
            return float(given)
        except (TypeError, ValueError):
            return None
    return None
