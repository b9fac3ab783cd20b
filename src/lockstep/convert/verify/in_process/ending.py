"""Let a script run on to its end, if that is near."""

from __future__ import annotations

import time
from typing import Any

from lockstep.convert.verify.in_process.training_state import Now

SECONDS = 3.0
"""How much time of the processor the original may use after its first step, to come to its end."""
SLOW = 10.0
"""The same, after which an original is slow that has not made all of its steps."""


def install(now: Now) -> None:
    """Stop the original at its next step once its time is over, or at once if it is slow."""
    recorder = now.recorder
    began: list[float] = []

    def stepped(_: Any) -> None:
        began.append(time.process_time())
        passed = began[-1] - began[0]
        if passed > SECONDS:
            recorder.further = 0
        if passed > SLOW and now.most_steps < (recorder.settings.steps or 0):
            recorder.note("slow")
            recorder.stop("slow")

    if now.kept.writes and recorder.further:
        recorder.on_stepped.append(stepped)
