"""Notice that a script updates its weights itself, so that it is run again with that known."""

from __future__ import annotations

from lockstep.convert.verify.in_process.hand_updates import Updates
from lockstep.convert.verify.in_process.training_state import Now


def install(now: Now) -> None:
    """Watch for such updates in the run of the original, and stop it at the first one."""

    def stop() -> None:
        now.recorder.note("by_hand")
        now.recorder.stop("by hand")

    if now.kept.writes:
        # With an optimizer its steps count, and weights may change between them.
        Updates(now.recorder, stop, over=lambda: now.begun)
