"""Record the numbers that each rank prints or logs: they should agree."""

from __future__ import annotations

import builtins
import logging
import sys
from functools import wraps
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import Any

from lockstep.probes.recorder import Recorder, place

MOST = 500


def install(recorder: Recorder) -> None:
    """Watch print, logging and errors."""
    left = MOST
    # import_module, because torch.multiprocessing has a function of that name.
    spawn: Any = import_module("torch.multiprocessing.spawn")
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

    def noted(error: BaseException) -> None:
        recorder.note("crashed", error=f"{type(error).__name__}: {error}"[:4000])
        recorder.flush()

    def crashed(kind: Any, error: Any, trace: Any) -> None:
        noted(error)
        crash(kind, error, trace)

    def noting(original: Any) -> Any:
        """Record the error that ends a started process, which does not reach sys.excepthook."""

        @wraps(original)
        def ran(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                recorder.failed = True
                if isinstance(error, Exception):
                    noted(error)
                raise

        return ran

    @wraps(spawn._wrap)
    def spawned(function: Any, *args: Any) -> Any:
        return start(noting(function), *args)

    start = spawn._wrap
    spawn._wrap = spawned
    BaseProcess.run = noting(BaseProcess.run)  # type: ignore[method-assign]
    builtins.print = said
    logging.Logger.handle = handled  # type: ignore[method-assign]
    sys.excepthook = crashed
