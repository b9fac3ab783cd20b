"""Tasks: the learner fills a gap in a program, and a separate process judges the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.processes.sandbox import run_module

SECONDS = 20.0
MOST = 4000
"""How many characters of an attempt's output are shown."""


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


def by(check: str, seconds: float = SECONDS) -> Callable[[str], list[str]]:
    """A judge that runs the text in a process of its own and lets `module:function` look at it.

    The function gets the names that the text defined and says what is wrong with them.
    """

    def judge(text: str) -> list[str]:
        return _attempt(check, text, seconds)

    return judge


def _attempt(check: str, text: str, seconds: float) -> list[str]:
    wrong: list[str] = []
    answered = []

    def hear(answer: Any) -> bool:
        answered.append(True)
        wrong.extend(str(one) for one in answer)
        return True

    ended = run_module(
        "lockstep.labs.shared.attempt", check, given=text, hear=hear, limit=seconds, most=MOST
    )
    if ended.late:
        return [f"It ran for {seconds:g} s without an end. Is there a loop that never stops?"]
    if not answered:
        tail = f"\n{ended.printed}" if ended.printed else ""
        return [f"It ended in the middle, with exit code {ended.code}.{tail}"]
    return [*wrong, f"It printed:\n{ended.printed}"] if wrong and ended.printed else wrong
