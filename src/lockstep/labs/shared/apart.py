"""Run a function in a process of its own.

    python -m lockstep.labs.shared.apart module:function FD LIMIT

Replicas are forked, and a page cannot fork: its process has threads, and signals are not its to
take. It must also stay alive whatever a learner's program does.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from threading import Timer
from typing import Any

from lockstep.errors import LockstepError, RunError
from lockstep.world import elsewhere

GRACE = 15.0
"""Seconds that a process has to end what it started when its time is over."""
MOST_WRITTEN = 1 << 28
"""Bytes of a file: a program that prints without end must not fill the disk."""
MOST_SHOWN = 2000
Report = Callable[[float, str], None]
"""Says how far a measurement is: a share of 1, and what it does."""


class Late(RunError):
    """Its time was over."""


class _Over(BaseException):
    """The same inside of the process: nobody there may take it for an error of its own."""


def quiet(share: float, what: str) -> None:
    """A report to nobody."""


def apart(
    function: str, report: Report = quiet, *, limit: float | None = None, **given: Any
) -> dict[str, Any]:
    """What `module:function` returned for `given`, as plain data; `report` hears how far it is.

    It runs in an empty folder, which is gone afterwards, for at most `limit` seconds.
    """
    reading, writing = os.pipe()
    with (
        tempfile.TemporaryDirectory(prefix="lockstep-lab-") as folder,
        tempfile.TemporaryFile() as log,
        os.fdopen(reading) as lines,
    ):
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, function, str(writing), str(limit or 0)],
            cwd=folder,
            env=elsewhere(),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            # Ctrl-C is for the page.
            start_new_session=True,
        )
        os.close(writing)
        watch = Timer((limit or 0) + GRACE, process.kill)
        if limit is not None:
            watch.start()
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already, and its log says why
                process.stdin.write(json.dumps(given).encode())
                process.stdin.close()
            for line in lines:
                kind, *rest = json.loads(line)
                if kind == "at":
                    report(*rest)
                elif kind == "failed":
                    raise RunError(rest[0])
                elif kind == "late":
                    raise Late(f"It took longer than {limit:.0f} seconds and was ended.")
                else:
                    return dict(rest[0])
            # What it says of its own end comes after the pipe's.
            process.wait()
        finally:
            watch.cancel()
            # Its replicas die with it.
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read().decode(errors="replace").strip()[-MOST_SHOWN:]
    raise RunError(f"{function} ended in the middle, exit code {process.returncode}.\n{said}")


def _over(number: int, frame: object) -> None:
    raise _Over


def _main(function: str, pipe: int, limit: float) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, most))
    with os.fdopen(pipe, "w") as answers:

        def tell(*parts: Any) -> None:
            answers.write(json.dumps(parts) + "\n")
            answers.flush()

        module, name = function.split(":")
        given = json.load(sys.stdin)
        signal.signal(signal.SIGALRM, _over)
        try:
            signal.setitimer(signal.ITIMER_REAL, limit)
            call = getattr(importlib.import_module(module), name)
            found = call(report=lambda share, what: tell("at", share, what), **given)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except _Over:
            tell("late")
        except LockstepError as error:
            tell("failed", str(error))
        else:
            tell("done", found if isinstance(found, dict) else asdict(found))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
