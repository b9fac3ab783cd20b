"""Start data workers by a fork that is tried again if the child hangs.

A fork copies only the thread that calls it. If a thread of gloo takes Python's list of threads at
that moment, the list stays locked in the child, which waits for it for ever inside `os.fork`
(CPython 3.11). So a child reports that it has come out of the fork, and one that does not report is
killed and replaced.
"""

from __future__ import annotations

import os
import select
import signal
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.popen_fork import Popen
from multiprocessing.process import BaseProcess
from typing import Any

from lockstep.errors import RunError

_fork = os.fork
SECONDS = 10.0
"""How long a child may take to come out of the fork; it needs milliseconds."""
TRIES = 5


def checked_fork() -> int:
    """Fork as `os.fork` does, and replace a child that never comes out of it."""
    for _ in range(TRIES):
        reading, writing = os.pipe()
        pid = _fork()
        if not pid:
            os.close(reading)
            os.write(writing, b"1")
            os.close(writing)
            return 0
        os.close(writing)
        ready, _, _ = select.select([reading], [], [], SECONDS)
        os.close(reading)
        if ready:
            return pid
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    raise RunError(
        f"lockstep could not start a data worker: the forked process hung {TRIES} times. Read the "
        "data without workers: --workers 0."
    )


class _Popen(Popen):
    """The class that multiprocessing uses to start a process."""

    def _launch(self, process: BaseProcess) -> None:
        before, os.fork = os.fork, checked_fork
        try:
            super()._launch(process)  # type: ignore[misc]
        finally:
            os.fork = before


class _Process(ForkProcess):
    @staticmethod
    def _Popen(process: BaseProcess) -> Any:
        return _Popen(process)


class WorkerContext(ForkContext):
    """Gives DataLoader the processes of this module: `multiprocessing_context=WorkerContext()`."""

    Process = _Process
