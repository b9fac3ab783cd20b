"""Rewrite a script: insert, replace or indent text, line by line.

Only the requested places change, so comments and formatting stay as they are.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Sequence
from typing import NamedTuple

import libcst as cst

from lockstep.errors import ConvertError
from lockstep.source.script import Script

AFTER, BEFORE, HEADER, INDENT = range(4)
"""Which text comes first if several begin at one offset."""


class Put(NamedTuple):
    """A text that replaces the old text between two offsets."""

    start: int
    end: int
    order: tuple[int, int, int]
    text: str


class Draft:
    """The new version of one script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.puts: list[Put] = []
        self._starts = [0, *(end.end() for end in re.finditer(r"\r\n|\r|\n", script.text))]
        self._inner = _lines_inside_strings(script.text)

    @property
    def unit(self) -> str:
        """One level of indentation."""
        return self.script.tree.default_indent

    def replace(self, node: cst.CSTNode, text: str) -> None:
        """Put text in the place of a node."""
        place = self.script.place(node)
        start = self._offset(place.start.line, place.start.column)
        self._put(start, self._offset(place.end.line, place.end.column), BEFORE, text)

    def insert(self, node: cst.CSTNode, text: str, *, behind: bool = False) -> None:
        """Put text right before a node, or right behind it, in the same line."""
        place = self.script.place(node)
        spot = place.end if behind else place.start
        at = self._offset(spot.line, spot.column)
        self._put(at, at, AFTER if behind else BEFORE, text)

    def around(self, node: cst.CSTNode, before: str, behind: str = ")") -> None:
        """Put text right before a node and right behind it."""
        self.insert(node, before)
        self.insert(node, behind, behind=True)

    def before(self, statement: cst.CSTNode, text: str) -> None:
        """Put lines above a statement, with its indentation."""
        at = self._line(self.script.place(statement).start.line)
        self._put(at, at, BEFORE, self._lines(statement, text))

    def after(self, statement: cst.CSTNode, text: str) -> None:
        """Put lines below a statement."""
        at = self._line(self.script.place(statement).end.line + 1)
        lines = self._lines(statement, text)
        if at == len(self.script.text) and not self.script.text.endswith("\n"):
            lines = "\n" + lines
        # If two statements end on one line, text after the inner one comes first.
        self._put(at, at, AFTER, lines, -len(self.indentation(statement)))

    def under(self, header: str, statements: Sequence[cst.CSTNode]) -> None:
        """Put statements that follow each other under a header such as `if RANK == 0:`."""
        first = self.script.place(statements[0]).start.line
        last = self.script.place(statements[-1]).end.line
        at = self._line(first)
        self._put(at, at, HEADER, self._lines(statements[0], header))
        for line in range(first, last + 1):
            if self.script.lines[line - 1].strip() and line not in self._inner:
                self._put(self._line(line), self._line(line), INDENT, self.unit)

    def remove(self, statement: cst.CSTNode) -> None:
        """Remove a statement with its lines."""
        place = self.script.place(statement)
        self._put(self._line(place.start.line), self._line(place.end.line + 1), BEFORE, "")

    def text(self) -> str:
        """Return the new text."""
        text = self.script.text
        newline = "\r\n" if "\r\n" in text else "\n"
        done = len(text)
        self._join()
        for put in reversed(self.puts):
            if put.end > done:
                line = self.script.text[: put.start].count("\n") + 1
                raise ConvertError(
                    f"line {line}: two changes meet in one expression. Split it into two "
                    "statements."
                )
            text = text[: put.start] + put.text.replace("\n", newline) + text[put.end :]
            done = put.start
        return text

    def origin(self, line: int, column: int) -> tuple[int, int] | None:
        """Return the place in the old text of what ends at a place in the new text.

        Columns count bytes. Return None for text that was put in.
        """
        new = self.text()
        starts = [0, *(end.end() for end in re.finditer(r"\r\n|\r|\n", new))]
        if line > len(starts):
            return None
        rest = new[starts[line - 1] :].encode()[:column].decode(errors="ignore")
        last = starts[line - 1] + len(rest) - 1
        newline = "\r\n" if "\r\n" in self.script.text else "\n"
        here = old = 0
        for put in [*self.puts, Put(len(self.script.text) + 1, 0, (0, 0, 0), "")]:
            length = put.start - old
            if here <= last < here + length:
                at = old + last - here + 1
                number = max(n for n, start in enumerate(self._starts) if start < at)
                before = self.script.text[self._starts[number] : at]
                return number + 1, len(before.encode())
            here += length + len(put.text.replace("\n", newline))
            old = put.end
        return None

    def _join(self) -> None:
        """Sort what was put, and merge neighbouring blocks that have the same header."""
        self.puts.sort(key=lambda p: (p.start, p.end > p.start, p.order))
        for number in range(len(self.puts) - 1, 0, -1):
            first, second = self.puts[number - 1 : number + 1]
            header, _, rest = second.text.partition("\n")
            same = first.end == second.start == first.start and first.text.startswith(f"{header}\n")
            if same and second.order[0] in (AFTER, BEFORE) and header.endswith(":") and rest:
                self.puts[number - 1 : number + 1] = [first._replace(text=first.text + rest)]

    def indentation(self, statement: cst.CSTNode) -> str:
        """Return the white space in front of a statement."""
        place = self.script.place(statement)
        return self.script.lines[place.start.line - 1][: place.start.column]

    def _put(self, start: int, end: int, order: int, text: str, depth: int = 0) -> None:
        self.puts.append(Put(start, end, (order, depth, len(self.puts)), text))

    def _lines(self, statement: cst.CSTNode, text: str) -> str:
        before = self.indentation(statement)
        lines = text.replace("\t", self.unit).splitlines()
        return "".join(f"{before}{line}\n" if line else "\n" for line in lines)

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _line(self, number: int) -> int:
        """Return the offset where a line begins; after the last one, the end of the text."""
        return self._starts[number - 1] if number <= len(self._starts) else len(self.script.text)


def _lines_inside_strings(text: str) -> set[int]:
    """Return the lines that begin inside a string, where white space is part of the string."""
    found: set[int] = set()
    opened: list[int] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.STRING:
                found.update(range(token.start[0] + 1, token.end[0] + 1))
            elif tokenize.tok_name[token.type] == "FSTRING_START":
                opened.append(token.start[0])
            elif tokenize.tok_name[token.type] == "FSTRING_END":
                found.update(range(opened.pop() + 1, token.end[0] + 1))
    except (tokenize.TokenError, IndentationError):
        pass
    return found
