"""Find what runs before and after a statement, and which names later code reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from lockstep.convert.analysis.blocks import assigned_to, block_of, receiver, statement_of
from lockstep.convert.work import Work
from lockstep.source.gradients import is_backward
from lockstep.source.name_uses import targets
from lockstep.source.project import DEPTH, Project
from lockstep.source.script import Script
from lockstep.source.tree import walk, walk_shallow

Wanted = Callable[[Script, cst.CSTNode], bool]


def names_set(node: cst.CSTNode) -> set[str]:
    """Return all names that a statement sets, also inside its blocks."""
    return {name for part in walk_shallow(node) for name in _set_by(part)}


def names_made(node: cst.CSTNode) -> set[str]:
    """Return the names that get new values: `a = []`, but not `for a in b`."""
    made: set[str] = set()
    found: set[str] = set()
    for part in walk_shallow(node):
        if isinstance(part, cst.Assign) and not all(
            isinstance(place, cst.Name | cst.Tuple) for place in assigned_to(part)
        ):
            # `a[0] = b`
            continue
        if isinstance(part, cst.WithItem) or _is_new(getattr(part, "value", None)):
            made |= _set_by(part)
        else:
            found |= _set_by(part)
    return made - found


def is_read_after(script: Script, statement: cst.CSTNode, name: str) -> bool:
    """Return whether code outside a statement may read what it assigns to a name."""
    inside = set(walk(statement))
    scope = script.scope_of(statement)
    for part in script.order:
        if not isinstance(part, cst.Name) or part.value != name or part in inside:
            continue
        found = script.scope_of(part).find(name)
        if (
            (found is None or found[0] is scope)
            and _is_read(script, part)
            and not runs_before(script, part, statement)
            and not _set_anew(script, part, statement)
        ):
            return True
    return False


def _set_by(node: cst.CSTNode) -> set[str]:
    if isinstance(node, cst.Assign | cst.AnnAssign | cst.AugAssign):
        return set().union(*map(targets, assigned_to(node)))
    if isinstance(node, cst.For | cst.CompFor | cst.NamedExpr):
        return targets(node.target)
    if isinstance(node, cst.WithItem) and node.asname is not None:
        return targets(node.asname.name)
    return set()


def _is_new(value: cst.CSTNode | None) -> bool:
    """Return whether an expression makes a new value."""
    if isinstance(value, cst.Call):
        return receiver(value, "get") is None
    return isinstance(value, cst.BaseComp | cst.BaseList | cst.BaseDict | cst.BaseSet)


def _is_read(script: Script, name: cst.Name) -> bool:
    """Return whether a name is read: not a target, and not the part after a dot."""
    node: cst.CSTNode = name
    parent = script.parents[node]
    if isinstance(parent, cst.Attribute | cst.Arg):
        return node is parent.value
    while isinstance(parent, cst.Element | cst.Tuple | cst.List):
        node, parent = parent, script.parents[parent]
    if isinstance(parent, cst.For | cst.CompFor | cst.AnnAssign | cst.NamedExpr):
        return node is not parent.target
    return not isinstance(parent, cst.AssignTarget | cst.AsName)


def runs_before(script: Script, part: cst.CSTNode, statement: cst.CSTNode) -> bool:
    """Return whether a node stands above a statement, and no loop returns to it."""
    return (
        script.order[part] < script.order[statement]
        and script.function_of(part) is script.function_of(statement)
        and not any(
            isinstance(above, cst.For | cst.While) and script.inside(part, above)
            for above in script.above(statement)
        )
    )


def _set_anew(script: Script, name: cst.Name, statement: cst.CSTNode) -> bool:
    """Return whether a name was set again since: by a loop, a `with`, or a line above it."""
    below: cst.CSTNode = name
    for above in script.above(name):
        found: Sequence[cst.CSTNode] = ()
        if isinstance(above, cst.BaseComp):
            found = [part for part in walk(above) if isinstance(part, cst.CompFor)]
        elif isinstance(above, cst.For) and below is above.body:
            found = [above]
        elif isinstance(above, cst.With) and below is above.body:
            found = above.items
        elif isinstance(above, cst.IndentedBlock | cst.Module):
            lines = above.body[: above.body.index(below)]
            found = [
                part
                for line in lines
                if isinstance(line, cst.SimpleStatementLine)
                and script.order[line] > script.order[statement]
                for part in line.body
                if isinstance(part, cst.Assign | cst.AnnAssign)
            ]
        if any(name.value in _set_by(part) for part in found):
            return True
        below = above
    return False


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
    project = work.project
    saves = {save for _, save in project.calls("torch.save")}
    return bool(saves) and runs_earlier(
        project, work.script, call, lambda s, n: n in saves or is_backward(s, n)
    )
