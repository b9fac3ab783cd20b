"""Find the expression of the script that led here, with its first and last column."""

from __future__ import annotations

import sys
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from lockstep.probes.recorder import kind_of


class Span(NamedTuple):
    """The place of an expression. Columns count bytes, as Python's own positions do."""

    path: str
    line: int
    """The line where it ends."""
    column: int
    """The column where it ends. Two calls of a file never end at the same place."""
    first: int
    """The line where it begins."""


_positions: dict[CodeType, list[Any]] = {}
_NOWHERE = Span("", 0, 0, 0)


def span_of(frame: FrameType) -> Span:
    """Return the place of the expression that a frame is at."""
    code = frame.f_code
    if code not in _positions:
        _positions[code] = list(code.co_positions())
    first, last, _, column = _positions[code][frame.f_lasti // 2]
    if last is None or column is None:
        return _NOWHERE._replace(path=code.co_filename, line=frame.f_lineno)
    return Span(code.co_filename, last, column, first)


def script_frame(*, made: Any = None) -> FrameType | None:
    """Return the innermost frame that runs code of the script.

    With `made`, skip the methods of that object: its own `__init__` is not where it is made.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if kind_of(frame.f_code.co_filename) == "script":
            names = frame.f_code.co_varnames
            mine = frame.f_locals.get(names[0]) if made is not None and names else None
            if made is None or mine is not made:
                return frame
        frame = frame.f_back
    return None


def stack(deepest: int = 12) -> list[Span]:
    """Return the places in the script that led here, the innermost first."""
    found: list[Span] = []
    frame = script_frame()
    while frame is not None and len(found) < deepest:
        if kind_of(frame.f_code.co_filename) == "script":
            found.append(span_of(frame))
        frame = frame.f_back
    return found


def here(*, made: Any = None) -> Span:
    """Return the place in the script that led here; a place without a path if there is none."""
    frame = script_frame(made=made)
    return span_of(frame) if frame is not None else _NOWHERE


def self_of(frame: FrameType) -> Any:
    """Return the first argument of a frame's function, if it has one."""
    code = frame.f_code
    if not code.co_argcount or code.co_name.startswith("<"):
        return None
    found = frame.f_locals.get(code.co_varnames[0])
    return None if isinstance(found, ModuleType) else found
