"""Tasks: the learner fills a gap in a program, and a separate process judges the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.labs.shared.text import sections
from lockstep.processes.sandbox import run_module

SECONDS = 20.0
MOST = 4000
"""How many characters of an attempt's output are shown."""
_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A gap in a program that the learner fills."""

    name: str
    asks: str
    """What to do, in Markdown."""
    starter: str
    answer: str
    """A text that passes."""
    explains: str
    """The explanation, in Markdown, shown after the attempt."""
    judge: Callable[[str], list[str]]
    """Returns what is wrong with a text; an empty list means that it passes."""


def read_task(path: Path, name: str, check: str) -> Task:
    """Read a section of a file: what to do, the starter, the answer, and the explanation."""
    asks, starter, _, answer, explains = _PROGRAM.split(sections(path)[name])
    return Task(
        name=name, asks=asks, starter=starter, answer=answer, explains=explains, judge=by(check)
    )


def by(check: str, seconds: float = SECONDS) -> Callable[[str], list[str]]:
    """Return a judge that runs a text in a separate process.

    There, `check` (`module:function`) gets the names that the text defined, and returns what is
    wrong with them.
    """

    def judge(text: str) -> list[str]:
        answers: list[Any] = []

        def hear(answer: Any) -> bool:
            answers.append(answer)
            return True

        ended = run_module(
            "lockstep.labs.shared.attempt", check, given=text, hear=hear, limit=seconds, most=MOST
        )
        if ended.late:
            return [f"It ran for {seconds:g} s without an end. Is there a loop that never stops?"]
        if not answers:
            tail = f"\n{ended.printed}" if ended.printed else ""
            return [f"It ended in the middle, with exit code {ended.code}.{tail}"]
        wrong = [str(one) for one in answers[0]]
        return [*wrong, f"It printed:\n{ended.printed}"] if wrong and ended.printed else wrong

    return judge
