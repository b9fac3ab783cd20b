"""Find what may have run already when a program reaches a place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from lockstep.convert.analysis.blocks import block_of, statement_of
from lockstep.convert.work import Work
from lockstep.source.gradients import is_backward
from lockstep.source.project import DEPTH, Project
from lockstep.source.script import Script

Wanted = Callable[[Script, cst.CSTNode], bool]


def runs_earlier(
    project: Project, script: Script, node: cst.CSTNode, wanted: Wanted, depth: int = DEPTH
) -> bool:
    """Return whether wanted code may run before a node; True if the callers are not known."""
    if any(project.reaches(script, part, wanted) for part in _before(script, node)):
        return True
    function = script.function_of(node)
    if function is None:
        return False
    uses = project.callers(script, function)
    if not uses or not depth:
        return True
    return any(runs_earlier(project, where, call, wanted, depth - 1) for where, call in uses)


def _before(script: Script, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield what runs before a node in its function: statements above it, and loops around it."""
    while True:
        node = statement_of(script, node)
        block = block_of(script, node)
        for other in block[: block.index(node)]:
            if not isinstance(other, cst.FunctionDef | cst.ClassDef):
                yield other
        around = script.parents[node]
        if isinstance(around, cst.Module):
            return
        node = script.parents[around]
        while not isinstance(node, cst.BaseCompoundStatement):
            node = script.parents[node]
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            return
        if isinstance(node, cst.For | cst.While):
            yield node
        elif isinstance(node, cst.Try):
            yield node.body


def may_be_saved_here(work: Work, call: cst.Call) -> bool:
    """Return whether this run may have saved what a call reads."""
    project = work.parts.project
    saves = {save for _, save in project.calls("torch.save")}
    return bool(saves) and runs_earlier(
        project, work.script, call, lambda s, n: n in saves or is_backward(s, n)
    )
