"""Record the numbers that each rank prints or logs: they should agree."""

from __future__ import annotations

import builtins
import logging
import sys
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import Any

from lockstep.probes.patching import calling, replaces
from lockstep.probes.recorder import Recorder, place

MOST = 500


def install(recorder: Recorder) -> None:
    """Watch print, logging and errors."""
    left = MOST
    # import_module, because torch.multiprocessing has a function of that name.
    spawn: Any = import_module("torch.multiprocessing.spawn")

    def heard(text: str, where: str) -> None:
        nonlocal left
        if left > 0 and not recorder.worker and any(letter.isdigit() for letter in text):
            left -= 1
            recorder.note("said", text=text[:300], place=where, step=recorder.step)

    @replaces("print", builtins)
    def said(say: Any, *args: Any, **kwargs: Any) -> None:
        say(*args, **kwargs)
        if kwargs.get("file") in (None, sys.stdout, sys.stderr):
            heard((kwargs.get("sep") or " ").join(map(str, args)), place(2))

    @replaces("handle", logging.Logger)
    def handled(handle: Any, self: Any, record: Any) -> None:
        handle(self, record)
        if self.isEnabledFor(record.levelno):
            heard(record.getMessage(), f"{record.pathname}:{record.lineno}")

    def noted(error: BaseException) -> None:
        recorder.note("crashed", error=f"{type(error).__name__}: {error}"[:4000])
        recorder.flush()

    @replaces("excepthook", sys)
    def crashed(crash: Any, kind: Any, error: Any, trace: Any) -> None:
        noted(error)
        crash(kind, error, trace)

    @replaces("run", BaseProcess)
    def ran(original: Any, *args: Any, **kwargs: Any) -> Any:
        """Record the error that ends a started process, which does not reach sys.excepthook."""
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            recorder.failed = True
            if isinstance(error, Exception):
                noted(error)
            raise

    @replaces("_wrap", spawn)
    def spawned(start: Any, function: Any, *args: Any) -> Any:
        return start(calling(ran)(function), *args)
