"""What the learner fills in, and how it is judged: in a process of its own, with a time limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from lockstep.world import elsewhere

SECONDS = 20.0
MOST = 4000
"""Characters of what an attempt printed that are shown."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A gap in a text."""

    name: str
    asks: str
    """What to do, in Markdown."""
    starter: str
    answer: str
    """A text that passes."""
    explains: str
    """The short answer, in Markdown, for after."""
    judge: Callable[[str], list[str]]
    """What is wrong with a text; nothing: it passes."""


def by(check: str, seconds: float = SECONDS) -> Callable[[str], list[str]]:
    """A judge that runs the text in a process of its own and lets `module:function` look at it.

    The function gets the names that the text defined and says what is wrong with them.
    """

    def judge(text: str) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="lockstep-lab-") as folder:
            return _attempt(check, text, seconds, folder)

    return judge


def _attempt(check: str, text: str, seconds: float, folder: str) -> list[str]:
    reading, writing = os.pipe()
    with tempfile.TemporaryFile(dir=folder) as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.labs.shared.attempt", check, str(writing)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=elsewhere(),
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            process.communicate(text.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            return [f"It ran for {seconds:g} s without an end. Is there a loop that never stops?"]
        finally:
            # Also what the text has started in the background.
            _end_group(process)
            with os.fdopen(reading, "rb") as answer:
                said = answer.read()
        output.seek(0)
        printed = output.read(MOST).decode(errors="replace").strip()
    try:
        wrong = [str(one) for one in json.loads(said)]
    except ValueError:
        tail = f"\n{printed}" if printed else ""
        return [f"It ended in the middle, with exit code {process.returncode}.{tail}"]
    return [*wrong, f"It printed:\n{printed}"] if wrong and printed else wrong


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
