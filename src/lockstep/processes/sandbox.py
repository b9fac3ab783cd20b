"""Run a module in a process of its own: an empty folder, a time limit, answers in JSON."""

from __future__ import annotations

import json
import os
import select
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.processes.choose import reason_for_fresh_module
from lockstep.processes.fork import end_group
from lockstep.processes.forked import start_forked
from lockstep.processes.fresh import Process, start_fresh
from lockstep.world import elsewhere

POLL = 0.05
"""How often a process is looked at that sends nothing, in seconds."""


@dataclass(frozen=True)
class Ended:
    """How a module ended."""

    code: int
    """Its exit code, negative if a signal killed it."""
    late: bool
    """Whether the time limit ended it."""
    printed: str
    """What it printed."""


def run_module(
    module: str,
    *arguments: str,
    given: str,
    hear: Callable[[Any], bool],
    limit: float | None = None,
    most: int = 4000,
) -> Ended:
    """Run `python -m module *arguments FD` with `given` on its standard input.

    The module writes lines of JSON to the file descriptor FD, and `hear` gets each of them; the
    module is ended when `hear` returns True, when `limit` seconds have passed, or when it exits,
    and everything in its process group with it. Its folder is deleted afterwards. `most` limits
    the characters of `printed`, which are the last ones.
    """
    reading, writing = os.pipe()
    with (
        tempfile.TemporaryDirectory(prefix="lockstep-") as folder,
        tempfile.TemporaryFile() as words,
        tempfile.TemporaryFile() as output,
        os.fdopen(reading, "rb") as answers,
    ):
        words.write(given.encode())
        words.flush()
        words.seek(0)
        fork = reason_for_fresh_module(elsewhere()) is None
        try:
            process: Process = (start_forked if fork else start_fresh)(
                ["-m", module, *arguments, str(writing)],
                env=elsewhere(),
                cwd=folder,
                stdin=words,
                output=output,
                keep=(writing,),
            )
        finally:
            os.close(writing)
        try:
            late = _listen(process, answers.fileno(), hear, limit)
        finally:
            # Also what the module has started in the background.
            end_group(process.pid)
            code = process.wait()
        output.seek(0)
        printed = output.read().decode(errors="replace").strip()[-most:]
    return Ended(code, late, printed)


def _listen(
    process: Process, answers: int, hear: Callable[[Any], bool], limit: float | None
) -> bool:
    """Pass on what a module sends until it ends; return whether its time was over."""
    deadline = float("inf") if limit is None else time.monotonic() + limit
    content, waiting = b"", select.poll()
    waiting.register(answers, select.POLLIN)
    while time.monotonic() < deadline:
        # Look at the process first: what it sent before it ended is in the pipe by then. The end of
        # the pipe says nothing, as processes that it has started may hold the pipe open.
        over = process.poll() is not None
        ready = waiting.poll(0.0 if over else 1e3 * POLL)
        part = os.read(answers, 1 << 16) if ready else b""
        *lines, content = (content + part).split(b"\n")
        if any(hear(json.loads(line)) for line in lines):
            return False
        if over and not part:
            return False
        if ready and not part:
            time.sleep(POLL)  # the pipe is closed, and the process is about to end
    return True
