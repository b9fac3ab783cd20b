"""Remember what was replaced, and tell whether the script asked for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from lockstep.probes.recorder import kind_of


class Notes:
    """The data and libraries that this process has replaced."""

    facts: dict[str, None] = {}  # noqa: RUF012
    """One sentence for each, in the order of first use."""
    tell: Callable[[str], None] = staticmethod(lambda fact: None)
    """Called with each of them once."""


def note(fact: str) -> None:
    """Remember one replacement, for example "train.txt: a stand-in text of 20,000 words"."""
    if fact not in Notes.facts:
        Notes.facts[fact] = None
        Notes.tell(fact)


def asked_by_script() -> bool:
    """Whether the script itself is calling. Libraries know how to do without each other."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        kind = kind_of(path)
        if kind != "ours" and "/importlib/" not in path:
            return kind == "script"
        frame = frame.f_back
    return True
