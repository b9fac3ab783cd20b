"""Define rules, and the findings that they return."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst

from lockstep.source.edits import Edit
from lockstep.source.script import Script
from lockstep.source.training import Training

_IGNORE = re.compile(r"#\s*lockstep:\s*ignore(?:\[([\w\s,.-]*)\])?")


@dataclass(frozen=True)
class Fix:
    """A change that repairs a script."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool = True
    """Whether the fix is right in every case, so that nobody has to review it."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One bug: a row of rules.toml, and the function that finds it in the source."""

    name: str
    """The name of the bug."""
    code: str
    summary: str
    """What goes wrong, in one sentence."""
    advice: str
    """How to repair it, in one sentence."""
    look: Callable[[Training], Iterator[Found]] | None
    """Finds the bug in the source; None if only a run shows it."""
    handled_by: frozenset[str]
    """Frameworks that handle this themselves: the rule skips their scripts."""
    on_request: bool = False
    """Whether the rule reads scripts only if it is selected by name: it gives hints."""


@dataclass(frozen=True)
class Found:
    """A place in the source where a rule found its bug."""

    script: Script
    node: cst.CSTNode
    reason: str
    """What is wrong here, in one sentence."""
    certain: bool = True
    """Whether the bug is certain (an error) or only possible (a warning)."""
    fix: Fix | None = None


@dataclass(frozen=True)
class Sighting:
    """A bug that a rule found while a script ran."""

    place: str
    """The line of the user's code, as `path:line`; may be empty."""
    reason: str
    certain: bool = True


@dataclass(frozen=True)
class Finding:
    """A bug to report, with its place."""

    rule: Rule
    path: Path
    line: int
    column: int
    end_line: int
    end_column: int
    reason: str
    certain: bool
    where: str
    """Line and column for people; in a notebook, the cell as well."""
    fix: Fix | None = None
    running: bool = False
    """Whether a run showed it, and not the source."""

    def ignored(self, lines: Sequence[str]) -> bool:
        """Return whether `# lockstep: ignore[LS01]` in its first or last line keeps it quiet.

        A comment without brackets ignores all rules.
        """
        for number in {self.line, self.end_line}:
            note = _IGNORE.search(lines[number - 1]) if number <= len(lines) else None
            if note is not None:
                names = {name.strip() for name in (note[1] or "").split(",")} - {""}
                if not names or names & {self.rule.name, self.rule.code}:
                    return True
        return False

    @property
    def severity(self) -> str:
        """`error` for a certain finding, `warning` for a possible one."""
        return "error" if self.certain else "warning"

    @property
    def message(self) -> str:
        """The reason, with "possible:" in front if it is not certain."""
        return self.reason if self.certain else f"possible: {self.reason}"

    def described(self) -> dict[str, Any]:
        """Return the finding as --json prints it."""
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
    """Return a finding with its place in the text."""
    script = found.script
    start, end = script.span(found.node)
    where = f"{start[0]}:{start[1] + 1}"
    if script.places is not None and start[0] <= len(script.places):
        where = script.places[start[0] - 1]
    return Finding(rule, script.path, *start, *end, found.reason, found.certain, where, found.fix)


def witnessed(rule: Rule, sighting: Sighting, script: Path) -> Finding:
    """Return a finding of a run; without a place, it points to the script."""
    path, _, line = sighting.place.rpartition(":")
    number = int(line) if line.isdigit() else 1
    here = near(Path(path)) if path else script
    at = (number, 0)
    return Finding(
        rule, here, *at, *at, sighting.reason, sighting.certain, str(number), running=True
    )


def near(path: Path) -> Path:
    """Return a path relative to the current folder, if it is inside."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path


def near_place(place: str) -> str:
    """Return a place, `path:line`, relative to the current folder."""
    path, _, line = place.rpartition(":")
    return f"{near(Path(path))}:{line}" if path else place


def by_rank(values: Iterable[object]) -> str:
    """List the value of each rank.

    >>> by_rank([3, 4])
    '3 on rank 0, 4 on rank 1'
    """
    return ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
