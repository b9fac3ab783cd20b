"""Find files that one process writes before training and that all processes read later."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from lockstep.convert.analysis.blocks import names_in
from lockstep.convert.analysis.file_writes import opens_file, writes_file
from lockstep.convert.analysis.files_made_first import may_wait
from lockstep.convert.analysis.names_read_later import runs_before
from lockstep.convert.work import Work
from lockstep.source.script import Script
from lockstep.source.tree import walk

_READS = re.compile(
    r"(?!torch\.load$)(.*\.)?(open|load|loadtxt|genfromtxt|read_\w+|imread|ImageFolder|"
    r"DatasetFolder|safe_load|fromfile|memmap|i?glob|listdir|scandir|iterdir|h5py\.File)$"
)
"""Not torch.load: the rewrite of checkpoints waits for that one."""


def awaited(work: Work, inside: set[cst.CSTNode]) -> list[cst.CSTNode]:
    """Return the statements that write a file which later code reads."""
    return _among(work, work.parts.entry, inside)


def _among(
    work: Work, statements: Sequence[cst.CSTNode], inside: set[cst.CSTNode]
) -> list[cst.CSTNode]:
    found: list[cst.CSTNode] = []
    for statement in statements:
        if isinstance(statement, cst.FunctionDef | cst.ClassDef) or statement in inside:
            continue
        words = _written(work, statement, inside)
        if words and may_wait(work, statement):
            if _is_read(work, statement, words):
                found.append(statement)
            else:
                for block in _called(work, statement):
                    found += _among(work, block, inside)
    return found


def _written(work: Work, statement: cst.CSTNode, inside: set[cst.CSTNode]) -> set[str]:
    """Return the names and strings that tell where a statement writes files."""
    found: set[str] = set()
    for where, call in work.parts.project.calls_below(work.script, statement):
        if call not in inside and writes_file(work, where, call):
            found |= _words(where, call)
    if found:
        for part in walk(statement):
            if isinstance(part, cst.Call):
                found |= _words(work.script, part)
    return found


def _is_read(work: Work, statement: cst.CSTNode, words: set[str]) -> bool:
    own = set(walk(statement))
    return any(
        call not in own
        and not runs_before(work.script, call, statement)
        and words & _words(work.script, call)
        and _reads(work, work.script, call)
        and work.script.function_of(call) is work.script.function_of(statement)
        for call in work.script.calls
    )


def _reads(work: Work, script: Script, call: cst.Call) -> bool:
    """Return whether a call reads a file, or makes an object that reads one."""
    project = work.parts.project
    made = project.definition(script, call.func)
    if made is not None:
        where, body = made[0], made[1]
        calls = [part for part in walk(body) if isinstance(part, cst.Call) and part is not call]
        return any(_reads_itself(work, where, part) for part in calls)
    return _reads_itself(work, script, call)


def _reads_itself(work: Work, script: Script, call: cst.Call) -> bool:
    name = work.parts.project.title(script, call.func)
    return bool(_READS.match(name)) and not opens_file(work, script, call)


def _words(script: Script, call: cst.Call) -> set[str]:
    """Return the variables in a call, and the strings long enough to be a file's name."""
    found = set()
    for part in walk(call):
        if isinstance(part, cst.SimpleString) and len(part.value) > 4:
            found.add(part.value.strip("rbuf\"'"))
    for part, name in names_in(call):
        bound = script.scope_of(part).find(name.split(".")[0])
        if bound and any(b.kind in ("assign", "parameter") for b in bound[1]):
            found.add(name)
    return found


def _called(work: Work, statement: cst.CSTNode) -> list[Sequence[cst.CSTNode]]:
    """Return the bodies of functions that only this statement calls."""
    found: list[Sequence[cst.CSTNode]] = []
    for part in walk(statement):
        if isinstance(part, cst.Call):
            made = work.parts.project.function(work.script, part.func)
            once = made is not None and len(work.parts.project.uses.get(made[1], [])) == 1
            if made is not None and made[0] is work.script and once:
                found.append(made[1].body.body)
    return found
