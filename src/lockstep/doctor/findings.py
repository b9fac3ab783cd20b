"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst

from lockstep.source.edits import Edit
from lockstep.source.script import Script
from lockstep.source.training import Training


@dataclass(frozen=True)
class Fix:
    """How a script could be mended."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool = True
    """Whether it can only do what it should: no judgement of a person is needed."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One bug, and how to see it in the source. `watchers/` see it while a script runs."""

    name: str
    """Named for the bug."""
    code: str
    summary: str
    """What goes wrong, in one sentence."""
    advice: str
    """What to do about it, in one sentence."""
    look: Callable[[Training], Iterator[Found]] | None = None
    """None: the source does not show it, only a run does."""
    handled_by: frozenset[str] = frozenset()
    """Frameworks that see to it themselves: their scripts are not looked at."""


@dataclass(frozen=True)
class Found:
    """A place where a rule saw its bug."""

    script: Script
    node: cst.CSTNode
    reason: str
    """What is wrong here, in one sentence."""
    certain: bool = True
    """Whether it is an error; else it is possible, and a warning."""
    fix: Fix | None = None


@dataclass(frozen=True)
class Seen:
    """Something that a rule saw while a script ran."""

    place: str
    """Line of the user's code, as `path:line`; may be empty."""
    reason: str
    certain: bool = True


@dataclass(frozen=True)
class Finding:
    """What is reported."""

    rule: Rule
    path: Path
    line: int
    column: int
    end_line: int
    end_column: int
    reason: str
    certain: bool
    where: str
    """Line and column as a person would look for them; in a notebook with the cell."""
    fix: Fix | None = None
    running: bool = False
    """Whether it was seen while the script ran, not in its source."""

    @property
    def severity(self) -> str:
        """`error`, or `warning` for what is possible only."""
        return "error" if self.certain else "warning"

    @property
    def message(self) -> str:
        """The reason; one that is not certain says so."""
        return self.reason if self.certain else f"possible: {self.reason}"

    def described(self) -> dict[str, Any]:
        """For --json."""
        return {
            "rule": self.rule.name,
            "code": self.rule.code,
            "path": str(self.path),
            "line": self.line,
            "column": self.column + 1,
            "end_line": self.end_line,
            "end_column": self.end_column + 1,
            "severity": self.severity,
            "message": self.message,
            "advice": self.rule.advice,
            "seen": "running" if self.running else "source",
            "fix": self.fix and {"title": self.fix.title, "safe": self.fix.safe},
        }


def located(rule: Rule, found: Found) -> Finding:
    """A finding with its place in the text."""
    place = found.script.place(found.node)
    line, column = place.start.line, place.start.column
    where = f"{line}:{column + 1}"
    if found.script.places is not None and line <= len(found.script.places):
        where = found.script.places[line - 1]
    return Finding(
        rule,
        found.script.path,
        line,
        column,
        place.end.line,
        place.end.column,
        found.reason,
        found.certain,
        where,
        found.fix,
    )


def witnessed(rule: Rule, seen: Seen, script: Path) -> Finding:
    """A finding of a run; without a place of its own it belongs to the script."""
    path, _, line = seen.place.rpartition(":")
    number = int(line) if line.isdigit() else 1
    return Finding(
        rule,
        near(Path(path)) if path else script,
        number,
        0,
        number,
        0,
        seen.reason,
        seen.certain,
        str(number),
        running=True,
    )


def near(path: Path) -> Path:
    """A path as a person would write it from here."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path


def near_place(place: str) -> str:
    """The same for a place, `path:line`."""
    path, _, line = place.rpartition(":")
    return f"{near(Path(path))}:{line}" if path else place


def by_rank(values: Iterable[object]) -> str:
    """A value of each rank.

    >>> by_rank([3, 4])
    '3 on rank 0, 4 on rank 1'
    """
    return ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
