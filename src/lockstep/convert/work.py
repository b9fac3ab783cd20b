"""The state of one conversion: the parts of the script, the draft, and the report."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from lockstep.convert.analysis.blocks import statement_of
from lockstep.convert.analysis.parts import Parts
from lockstep.convert.draft import Draft
from lockstep.source.script import Script

WIDTH = 100
"""Columns of a line; longer lines are broken."""


@dataclass(frozen=True)
class Options:
    """Options of the user."""

    scale_batch: bool = False
    """Keep the batch of each process, and adapt the learning rate."""
    sync_batch_norm: bool = True
    """Let batch norm see the global batch."""


@dataclass(frozen=True)
class Change:
    """One change, for the report."""

    name: str
    """Name of the rewrite."""
    line: int
    """Line in the original script."""
    reason: str
    """What changed and why, in one sentence."""


@dataclass(frozen=True)
class Note:
    """Something that lockstep left alone, or assumed."""

    line: int
    text: str


class Work:
    """The state that the rewrites of one script share."""

    def __init__(self, parts: Parts, options: Options) -> None:
        self.parts, self.options = parts, options
        self.script: Script = parts.script
        self.project = parts.project
        self.draft = Draft(self.script)
        self.changes: list[Change] = []
        self.notes: list[Note] = []
        self.needs: dict[str, None] = {}
        """Imports and helpers that the new script needs."""
        self.rank = self.fresh("RANK")
        self.local_rank = self.fresh("LOCAL_RANK")
        self.world = self.fresh("WORLD_SIZE")
        self.all_sum = self.fresh("all_sum")
        self.mean_of_all = self.fresh("mean_of_all")
        self.all_gather = self.fresh("all_gather")
        self.bare = self.fresh("bare")
        self.part = self.fresh("Part")
        self.share = self.fresh("Share")
        self.divided = self.fresh("divided")
        self.evened: set[tuple[cst.CSTNode, str]] = set()
        """Batch sizes that are already asserted to divide evenly, with the asserting block."""
        self.devices: set[cst.CSTNode] = set()
        """Numbers of GPUs that were replaced."""
        self.rows: dict[cst.CSTNode | None, str | None] = {}
        """For each function, the rows of a process in a batch that is cut by hand."""
        self.split = bool(parts.trained_on)
        """Whether the training data are divided."""

    def fresh(self, name: str) -> str:
        """Return a name that the script does not use yet: the given one, or one with a number."""
        number = 1
        found = name
        while re.search(rf"\b{found}\b", self.script.text):
            number += 1
            found = f"{name}_{number}"
        return found

    def need(self, *names: str) -> None:
        """Ask for imports, or for helpers that the prelude defines."""
        self.needs.update(dict.fromkeys(names))

    def line(self, node: cst.CSTNode) -> int:
        """Return the line where a node begins; 0 if it is in another file."""
        return int(self.script.place(node).start.line) if node in self.script.order else 0

    def done(self, name: str, node: cst.CSTNode, reason: str) -> None:
        """Report a change."""
        self.changes.append(Change(name, self.line(node), reason))

    def note(self, node: cst.CSTNode, text: str) -> None:
        """Report something that was left alone."""
        self.notes.append(Note(self.line(node), text))

    def several(self, text: str) -> str:
        """Return lines that run only if there are several processes."""
        lines = "".join(f"\n\t{line}" for line in text.splitlines())
        return f"if {self.world} > 1:{lines}"

    def argument(self, call: cst.Call, text: str) -> None:
        """Add an argument to a call, on a new line if the line would get too long."""
        last = call.args[-1].value
        place, first = self.script.place(last), self.script.place(call.args[0])
        line = self.script.lines[place.end.line - 1]
        start = self.script.place(call.args[-1]).start
        if start.line > first.end.line and not line[: start.column].strip():
            self.draft.insert(last, ",\n" + line[: start.column] + text, behind=True)
            return
        if len(line) + len(text) + 2 <= WIDTH:
            self.draft.insert(last, f", {text}", behind=True)
            return
        column = first.start.column
        if first.start.line == place.end.line and column > WIDTH - len(text):
            column = len(self.draft.indentation(statement_of(self.script, call))) + 4
        self.draft.insert(last, ",\n" + " " * column + text, behind=True)
