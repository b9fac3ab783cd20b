"""Compare what two runs printed: the same lines, and numbers that agree."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import zip_longest

from lockstep.convert.verify.rounding_bounds import FACTOR
from lockstep.convert.verify.runs import Run

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
UNIT = re.compile(
    r"\s*(?:s|ms|us|secs?|seconds?|m|mins?|minutes?|h|hours?|it/s|\w+/s(?:ec)?|[MG]i?B)\b", re.I
)
CLOCK = re.compile(r"(?:time|took|elapsed|eta|sec\w*|duration|speed|throughput)\W{0,12}$", re.I)
SPAN = re.compile(
    r"(?<![\w.])(?:(?:\d+(?:d|h|m|s|ms|us))+|\d+ ?: ?\d\d ?: ?\d\d(?:\.\d+)?)\b", re.I
)
"""Durations such as 1m5s, 25s106ms and 00:01:05."""
CLOSE = 1e-5
"""The share of a number that rounding may change, if it is printed in full."""


@dataclass
class Line:
    """One printed line; its numbers are compared apart from its text."""

    text: str
    step: int
    evaluated: bool
    file: str = ""
    """The file that it is in; empty for standard output."""

    @property
    def frame(self) -> str:
        """The line with a mark in place of each number."""
        return NUMBER.sub("#", self._timeless)

    @property
    def numbers(self) -> list[str | None]:
        """The numbers of the line; None for durations and times."""
        return [None if self._clock(m) else m[0] for m in NUMBER.finditer(self._timeless)]

    @property
    def _timeless(self) -> str:
        return SPAN.sub("~", self.text)

    def _clock(self, found: re.Match[str]) -> bool:
        before, after = self._timeless[: found.start()], self._timeless[found.end() :]
        # 12:30:59 is a time too.
        clocks = (before.endswith(":") and before[-2:-1].isdigit()) or re.match(r":\d", after)
        return bool(clocks or UNIT.match(after) or CLOCK.search(before))


@dataclass
class Apart:
    """Two lines that differ; one of them may be missing."""

    theirs: Line | None
    ours: Line | None
    numbers: tuple[int, ...] = ()
    """Which numbers of the lines differ, if nothing else does."""
    local: bool = False
    """Whether the ranks print different numbers there, each about its own part of the batch."""

    @property
    def text(self) -> str:
        """A sentence that names both lines."""
        there = f'"{self.theirs.text}"' if self.theirs else "nothing"
        here = f'"{self.ours.text}"' if self.ours else "nothing"
        line = self.theirs or self.ours
        if line is not None and line.file:
            return f"in {line.file}, the original writes {there}, the result {here}"
        return f"the original prints {there}, the result {here}"

    @property
    def evaluated(self) -> bool:
        """Whether both lines print an evaluation, of which all ranks know the whole."""
        both = all(line is not None and line.evaluated for line in (self.theirs, self.ours))
        return both and not self.local

    @property
    def step(self) -> int:
        """The number of steps before the line."""
        line = self.theirs or self.ours
        return line.step if line is not None else 0


def lines(run: Run, rank: int = 0) -> list[Line]:
    """Return the lines that a rank printed, or wanted to print."""
    here = str(run.working)
    found = run.ranks[rank].of("line")
    return [
        Line(e["text"].replace(here, "."), e["step"], e["evaluated"])
        for e in found
        if e["text"].strip()
    ]


def written(run: Run, path: str) -> list[Line]:
    """Return the lines of a file."""
    known = run.files.get(path)
    texts = [text.replace(str(run.working), ".") for text in known["lines"]] if known else []
    return [Line(text, 0, False, path) for text in texts if text.strip()]


def differing(
    original: Run, others: Sequence[Run], run: Run, *, exact: bool, files: bool = False
) -> Iterator[Apart]:
    """Yield the lines that differ; with `exact`, also those that differ in the last digit only.

    `others` are more runs of the original. What they print differently proves nothing. With
    `files`, compare the texts that both write, too.
    """
    each = [lines(run, rank) for rank in range(1, len(run.ranks))]
    ours = lines(run)
    for apart in _apart(lines(original), [lines(one) for one in others], ours, exact):
        yield replace(apart, local=_is_local(apart, ours, each))
    for path in original.files if files else ():
        if path in run.files:
            each = [written(one, path) for one in others]
            yield from _apart(written(original, path), each, written(run, path), exact)


def _is_local(apart: Apart, ours: list[Line], each: list[list[Line]]) -> bool:
    """Return whether all numbers of a line that differ are not the same on all ranks."""
    line = apart.ours
    if line is None or not apart.numbers:
        return False
    # Two ranks may print the same digits by chance: look at all lines of this kind.
    mine, *others = ([o for o in rank if o.frame == line.frame] for rank in (ours, *each))
    return all(
        any(
            a.numbers[n] != b.numbers[n]
            for rank in others
            for a, b in zip(mine, rank, strict=False)
        )
        for n in apart.numbers
    )


def _apart(
    theirs: list[Line], others: list[list[Line]], ours: list[Line], exact: bool
) -> Iterator[Apart]:
    witnesses: dict[int, list[Line]] = defaultdict(list)
    for moved in others:
        for a, b in _pairs(theirs, moved):
            if a is not None and b is not None:
                witnesses[a].append(moved[b])
    for a, b in _pairs(theirs, ours):
        if a is None or b is None:
            yield Apart(theirs[a] if a is not None else None, ours[b] if b is not None else None)
        elif not _agree(theirs[a], ours[b], witnesses[a], exact):
            numbers = _differing(theirs[a], ours[b], witnesses[a], exact)
            yield Apart(theirs[a], ours[b], tuple(numbers or ()))


def _pairs(theirs: list[Line], ours: list[Line]) -> Iterator[tuple[int | None, int | None]]:
    """Yield pairs of indices of lines whose text around the numbers agrees."""
    matcher = SequenceMatcher(
        None, [line.frame for line in theirs], [line.frame for line in ours], autojunk=False
    )
    for _, a, end_a, b, end_b in matcher.get_opcodes():
        yield from zip_longest(range(a, end_a), range(b, end_b))


def _agree(theirs: Line, ours: Line, others: list[Line], exact: bool) -> bool:
    return _differing(theirs, ours, others, exact) == []


def _differing(theirs: Line, ours: Line, others: list[Line], exact: bool) -> list[int] | None:
    """Return which numbers of two lines differ; None if their text does."""
    if theirs.frame != ours.frame or any(theirs.frame != other.frame for other in others):
        return [] if theirs.text == ours.text else None
    found = []
    each = zip(theirs.numbers, ours.numbers, *(other.numbers for other in others), strict=True)
    for number, (a, b, *moved) in enumerate(each):
        if a is None or b is None or a == b:
            continue
        gap = max((abs(float(a) - float(c or a)) for c in moved), default=0.0)
        # A number that differs so much between two runs of the original is an address or a time.
        if gap > 0.01 * abs(float(a)):
            continue
        if exact or abs(float(a) - float(b)) > _room(a) + FACTOR * gap:
            found.append(number)
    return found


def _room(number: str) -> float:
    """Return what rounding may do to a number: its last digit; 0 for whole numbers."""
    digits, _, power = number.lower().partition("e")
    if "." not in digits:
        return 0.0
    last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return 1.01 * last + CLOSE * abs(float(number))
