"""What was stood in for, and who asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from lockstep.probes.recorder import kind_of


class Notes:
    """Of this process."""

    facts: dict[str, None] = {}  # noqa: RUF012
    """In the order of first use."""
    tell: Callable[[str], None] = staticmethod(lambda fact: None)
    """Called with each fact once."""


def note(fact: str) -> None:
    """Remember that this was stood in for."""
    if fact not in Notes.facts:
        Notes.facts[fact] = None
        Notes.tell(fact)


def pretended() -> list[str]:
    """What was stood in for so far: "MNIST: stand-in data, 2,048 samples of 1x28x28" and so on."""
    return list(Notes.facts)


def asked_by_script() -> bool:
    """Whether it is the script that asks: libraries know how to do without each other."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        kind = kind_of(path)
        if kind != "ours" and "/importlib/" not in path:
            return kind == "script"
        frame = frame.f_back
    return True
