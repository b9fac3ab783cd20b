"""The state of one conversion: the files of the program, their drafts, and the report."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from lockstep.convert import companion
from lockstep.convert.analysis.blocks import statement_of
from lockstep.convert.analysis.made_files import MadeFiles
from lockstep.convert.analysis.parts import Parts
from lockstep.convert.draft import Draft
from lockstep.convert.observe import Seen, Spot
from lockstep.convert.sites import Sites
from lockstep.probes.spans import Span
from lockstep.source.script import Script

WIDTH = 100
"""Columns of a line; longer lines are broken."""
DDP, UNUSED, AVERAGE = "ddp", "unused", "average"
"""How gradients are averaged: by DDP, by DDP that looks for unused parameters, or one by one."""


@dataclass(frozen=True)
class Options:
    """Options of the user, and what runs have decided."""

    scale_batch: bool = False
    """Keep the batch of each process, and adapt the learning rate."""
    sync_batch_norm: bool = True
    """Let batch norm see the global batch."""
    averaging: str = ""
    """How gradients are averaged; empty for what the run of the original suggests."""
    spread: bool = True
    """Whether the processes divide the batches of evaluations."""
    sums: bool = False
    """Whether runs have shown that the loss is a sum over the batch."""
    items: bool = True
    """Whether means over numbers of items that change count by them."""
    ratios: bool = False
    """Whether a sum divided by a variable is a mean over the items that the variable counts."""
    readouts: tuple[tuple[Spot, str], ...] = ()
    """How numbers that the script reads from tensors combine over the processes."""
    numbers: bool = False
    """Whether numbers that equal the batch size stand for it, where training makes tensors."""
    source: int = 0
    """Which expression gives batches that no DataLoader of the script makes, counted from 1."""
    dimension: int = 0
    """The dimension of the rows in those batches."""
    counts: bool = False
    """Whether numbers of samples that training adds up are of the whole batch."""


@dataclass(frozen=True)
class Change:
    """One change, for the report."""

    name: str
    """Name of the rewrite."""
    line: int
    """Line in the original file."""
    reason: str
    """What changed and why, in one sentence."""
    file: str = ""
    """The file, if it is not the script itself."""


@dataclass(frozen=True)
class Note:
    """Something that lockstep left alone, or assumed."""

    line: int
    text: str
    file: str = ""


class Work:
    """The state that the rewrites of one program share. They work on one file at a time."""

    def __init__(self, parts: Parts, options: Options, seen: Seen) -> None:
        self.parts, self.options, self.seen = parts, options, seen
        self.project = parts.project
        self.entry = parts.script
        self.scripts = [script for script in parts.project.scripts if _is_beside(script, parts)]
        self.drafts = {script: Draft(script) for script in self.scripts}
        self.sites = Sites(self.scripts)
        self.made_files = MadeFiles(self.project, self.sites, seen.made)
        self.changes: list[Change] = []
        self.notes: list[Note] = []
        self.flags: set[str] = set()
        """Conditions of lines in the companion module."""
        self.used: dict[Script, dict[str, str]] = {script: {} for script in self.scripts}
        """For each file: the helpers it needs, and their names there."""
        self.rows: dict[cst.CSTNode | None, str | None] = {}
        """For each function, the rows of a process in a batch that is cut by hand."""
        self.cut: set[cst.CSTNode] = set()
        """Draws of which each process makes its part."""
        self.mixed = False
        """Whether some losses are sums over the batch, and others are not."""
        self.split = bool(seen.loaders)
        """Whether the training data are divided."""
        taken = {word for script in self.scripts for word in _imported(script)}
        beside = {path.stem for path in self.entry.path.parent.glob("*.py")} if taken else set()
        self.module = next(n for n in companion.NAMES if n not in taken | beside)
        self.script = self.entry
        """The file that is rewritten now."""

    @property
    def weighs(self) -> bool:
        """Whether each process knows its share of the batch, and counts by it."""
        known = self.seen.loaders and not self.options.scale_batch and not self.mixed
        return self.seen.ran and bool(known or self.options.source)

    @property
    def draft(self) -> Draft:
        """The draft of the file that is rewritten now."""
        return self.drafts[self.script]

    def use(self, name: str) -> str:
        """Return the name of a helper in the current file, which imports it from now on."""
        known = self.used[self.script]
        if name not in known:
            known[name] = self.fresh(name)
        return known[name]

    def at(self, span: Span) -> cst.Call | None:
        """Turn to the file that a place is in, and return the call there."""
        found = self.sites.call(span)
        if found is None:
            return None
        self.script = found[0]
        return found[1]

    def fresh(self, name: str) -> str:
        """Return a name that the current file does not use yet: the given one, or a longer one."""
        number = 1
        found = name
        while re.search(rf"\b{found}\b", self.script.text):
            number += 1
            found = f"{name}_{number}"
        return found

    def line(self, node: cst.CSTNode) -> int:
        """Return the line where a node begins; 0 if it is in another file."""
        return int(self.script.place(node).start.line) if node in self.script.order else 0

    def done(self, name: str, node: cst.CSTNode, reason: str) -> None:
        """Report a change in the current file."""
        self.changes.append(Change(name, self.line(node), reason, self._file))

    def note(self, node: cst.CSTNode, text: str) -> None:
        """Report something that was left alone."""
        self.notes.append(Note(self.line(node), text, self._file))

    @property
    def _file(self) -> str:
        return "" if self.script is self.entry else self.script.path.name

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the statement of the current file that holds a node."""
        return statement_of(self.script, node)


def _is_beside(script: Script, parts: Parts) -> bool:
    """Return whether a file belongs to the folder of the program."""
    home = parts.script.path.parent.resolve()
    return script is parts.script or script.path.resolve().is_relative_to(home)


def _imported(script: Script) -> set[str]:
    return {path.strip(".").partition(".")[0] for path in script.imports} | {"lockstep"}
