"""A function in a process of its own, with a time limit: called with a document, answering one.

A page's own process has threads, which a fork does not survive, and must stay alive whatever a
learner's program does.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstep.errors import LockstepError, RunError

GRACE = 15.0
"""Seconds that a process has to end what it started when its time is over."""
POLL = 0.1
MOST_WRITTEN = 1 << 28
"""Bytes of a file: a program that prints without end must not fill the disk."""

Document = dict[str, Any]
Report = Callable[[float, str], None]
"""Says how far a measurement is: a share of 1, and what it does."""


class Late(RunError):
    """Its time was over."""


class _Over(BaseException):
    """The same inside of the process: nobody there may take it for an error of its own."""


def apart(
    function: str, given: Document, *, limit: float, report: Report = lambda share, what: None
) -> Document:
    """Call `package.module:function` with keyword arguments, for at most `limit` seconds.

    It runs in an empty folder, which is gone afterwards, and is given `report` as well.
    """
    with TemporaryDirectory(prefix="lockstep-lab-") as place:
        folder = Path(place)
        folder.joinpath("given.json").write_text(json.dumps(given))
        folder.joinpath("home").mkdir()
        with folder.joinpath("said").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, function, str(limit), place],
                cwd=folder / "home",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the page.
                start_new_session=True,
            )
        try:
            _watch(process, folder / "progress.json", limit + GRACE, report)
        finally:
            process.kill()
            process.wait()
        answer = folder / "answer.json"
        if not answer.exists():
            said = folder.joinpath("said").read_text(errors="replace").strip()
            raise RunError(f"{function} ended without an answer.\n{said[-2000:]}")
        document: Document = json.loads(answer.read_text())
    if "error" in document:
        raise (Late if document["late"] else RunError)(document["error"])
    return document


def _watch(process: subprocess.Popen[bytes], progress: Path, limit: float, report: Report) -> None:
    """Wait for its end, and pass on how far it is."""
    began, before = time.monotonic(), ""
    while process.poll() is None:
        if time.monotonic() - began > limit:
            raise Late(_late(limit))
        said = progress.read_text() if progress.exists() else ""
        if said != before:
            before = said
            report(*json.loads(said))
        time.sleep(POLL)


def _late(limit: float) -> str:
    return f"It took longer than {limit:.0f} seconds and was ended."


def _over(number: int, frame: object) -> None:
    raise _Over


def _say(folder: Path, share: float, what: str) -> None:
    new = folder / "progress.new"
    new.write_text(json.dumps([share, what]))
    new.replace(folder / "progress.json")


def main(function: str, limit: str, place: str) -> None:
    """In the process: call it, and leave the answer in the folder."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, most))
    signal.signal(signal.SIGALRM, _over)
    signal.setitimer(signal.ITIMER_REAL, float(limit))
    folder = Path(place)
    module, _, name = function.partition(":")
    given = json.loads(folder.joinpath("given.json").read_text())
    answer: Document
    try:
        answer = getattr(import_module(module), name)(**given, report=partial(_say, folder))
    except _Over:
        answer = {"error": _late(float(limit)), "late": True}
    except LockstepError as error:
        answer = {"error": str(error), "late": False}
    signal.setitimer(signal.ITIMER_REAL, 0)
    folder.joinpath("answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
