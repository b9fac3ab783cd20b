"""Change a text in some places, and leave the rest as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """A text that replaces another. Lines count from 1, columns from 0."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def applied(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with all edits made.

    >>> applied("a = 1\\nb = 2\\n", [Edit((2, 4), (2, 5), "3")])
    'a = 1\\nb = 3\\n'
    """
    # Not splitlines, since a form feed does not end a line of Python.
    starts = [0, *(end.end() for end in re.finditer(r"\r\n|\r|\n", text))]
    newline = "\r\n" if "\r\n" in text else "\n"

    def place(at: tuple[int, int]) -> int:
        return starts[at[0] - 1] + at[1]

    for edit in sorted(set(edits), key=lambda e: (e.start, e.end), reverse=True):
        new = edit.text.replace("\n", newline)
        text = text[: place(edit.start)] + new + text[place(edit.end) :]
    return text
