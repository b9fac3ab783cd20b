"""Run a function in a separate process.

    python -m lockstep.labs.shared.apart module:function LIMIT FD

A page cannot fork replicas: its process runs threads and does not own the signals. It must also
survive whatever a learner's program does.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_type_hints

from lockstep.errors import LockstepError, RunError
from lockstep.processes.sandbox import run_module

GRACE = 15.0
"""How long a process may take to end what it started when its time is over, in seconds."""
MOST_WRITTEN = 1 << 28
"""Largest file in bytes: a program that prints without end must not fill the disk."""
MOST_SHOWN = 2000
Report = Callable[[float, str], None]
"""A function that shows progress: a share between 0 and 1, and what is being done."""
Given = ParamSpec("Given")
Found = TypeVar("Found")


class Late(RunError):
    """Raised when a function ran longer than its limit."""


class _Over(BaseException):
    """Raised inside the process at the limit; not an Exception, so that no handler catches it."""


def quiet(share: float, what: str) -> None:
    """Show no progress."""


def apart(
    function: str, report: Report = quiet, *, limit: float | None = None, **given: Any
) -> dict[str, Any]:
    """Return what `module:function` returned for `given`, as plain data.

    The function runs in a process of its own, in an empty folder that is deleted afterwards, for
    `limit` seconds at the longest. `report` hears how far it is.
    """
    ending: list[Any] = []

    def hear(message: Any) -> bool:
        kind, *rest = message
        if kind == "at":
            report(*rest)
            return False
        ending[:] = [kind, *rest]
        return True

    ended = run_module(
        __name__,
        function,
        str(limit or 0),
        given=json.dumps(given),
        hear=hear,
        # The function has time to end what it started.
        limit=None if limit is None else limit + GRACE,
        most=MOST_SHOWN,
    )
    if not ending and not ended.late:
        raise RunError(f"{function} ended in the middle, exit code {ended.code}.\n{ended.printed}")
    if ending[:1] == ["done"]:
        return dict(ending[1])
    if ending[:1] == ["failed"]:
        raise RunError(ending[1])
    raise Late(f"It took longer than {limit:.0f} seconds, so the lab stopped it.")


def separate(
    limit: float | None = None,
) -> Callable[[Callable[Given, Found]], Callable[Given, Found]]:
    """Make a measurement, which takes a `report` and returns a dataclass, run by `apart`."""

    def decorated(measure: Callable[Given, Found]) -> Callable[Given, Found]:
        @wraps(measure)
        def measured(*args: Given.args, **kwargs: Given.kwargs) -> Found:
            name = f"{measure.__module__}:{measure.__name__}"
            given = inspect.signature(measure).bind(*args, **kwargs).arguments
            found: Found = get_type_hints(measure)["return"](**apart(name, limit=limit, **given))
            return found

        return measured

    return decorated


def _over(number: int, frame: object) -> None:
    raise _Over


def _main(function: str, limit: float, pipe: int) -> None:
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
            call = inspect.unwrap(getattr(importlib.import_module(module), name))
            found = call(report=lambda share, what: tell("at", share, what), **given)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except _Over:
            tell("late")
        except LockstepError as error:
            tell("failed", str(error))
        else:
            tell("done", found if isinstance(found, dict) else asdict(found))


if __name__ == "__main__":
    _main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
