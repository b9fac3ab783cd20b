"""What each rank says: the numbers in it should agree."""

from __future__ import annotations

import builtins
import logging
import sys
from functools import wraps
from typing import Any

from lockstep.probes.record import Recorder, place

MOST = 500


def install(recorder: Recorder) -> None:
    """Set the probe."""
    left = MOST
    say, handle, crash = builtins.print, logging.Logger.handle, sys.excepthook

    def heard(text: str, where: str) -> None:
        nonlocal left
        if left > 0 and not recorder.worker and any(letter.isdigit() for letter in text):
            left -= 1
            recorder.note("said", text=text[:300], place=where, step=recorder.step)

    @wraps(say)
    def said(*args: Any, **kwargs: Any) -> None:
        say(*args, **kwargs)
        if kwargs.get("file") in (None, sys.stdout, sys.stderr):
            heard((kwargs.get("sep") or " ").join(map(str, args)), place(2))

    @wraps(handle)
    def handled(self: Any, record: Any) -> None:
        handle(self, record)
        if self.isEnabledFor(record.levelno):
            heard(record.getMessage(), f"{record.pathname}:{record.lineno}")

    def crashed(kind: Any, error: Any, trace: Any) -> None:
        recorder.note("crashed", error=f"{kind.__name__}: {error}"[:4000])
        recorder.flush()
        crash(kind, error, trace)

    builtins.print = said
    logging.Logger.handle = handled  # type: ignore[method-assign]
    sys.excepthook = crashed
