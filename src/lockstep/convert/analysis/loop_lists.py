"""Find lists that a loop fills, and gather them from all processes in the order of one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from lockstep.convert.analysis.blocks import last_name, receiver
from lockstep.convert.analysis.loop_sums import addition, bound_in, entry, is_empty_list
from lockstep.convert.work import Work
from lockstep.source.name_uses import targets
from lockstep.source.script import Script
from lockstep.source.tree import constant, walk_shallow

_ON_HOST = re.compile(r"\.(item|tolist|numpy|cpu)\(\)|^(float|int|str|bool|len|round)\(")
_NESTED = cst.Tuple | cst.List | cst.Dict | cst.DictComp | cst.ListComp | cst.GeneratorExp
_PLAIN = cst.Expr | cst.SimpleStatementLine | cst.IndentedBlock | cst.With
_NEST = re.compile(r"(list|tuple|dict|zip|map|sorted)\(")


@dataclass(eq=False)
class Filled:
    """A list that a loop fills."""

    name: str
    put: list[tuple[cst.CSTNode, cst.BaseExpression, bool]] = field(default_factory=list)
    """Each statement that fills it, the value, and whether the value holds several items."""


def lists_of(script: Script, loop: cst.For) -> dict[str, Filled]:
    """Return the lists that are empty before a loop and filled in it, in the order of the text."""
    found: dict[str, Filled] = {}
    inside = bound_in(script, loop)
    for part in walk_shallow(loop.body):
        put = filling(script, part)
        if put is None or targets(put[0]) & inside:
            continue
        if is_empty_list(entry(script, loop, put[0])):
            name = script.code(put[0])
            found.setdefault(name, Filled(name)).put.append((part, *put[1:]))
    return found


def filling(
    script: Script, part: cst.CSTNode
) -> tuple[cst.BaseExpression, cst.BaseExpression, bool] | None:
    """Return a, b and whether b is many items, for `a.append(b)`, `a.extend(b)` or `a += b`."""
    added = addition(script, part)
    if added is not None:
        return (*added, True)
    owner = receiver(part, "append", "extend")
    if owner is None or not isinstance(part, cst.Call) or len(part.args) != 1:
        return None
    return owner, part.args[0].value, last_name(part) == "extend"


def obstacle(work: Work, script: Script, loop: cst.For, filled: Filled) -> str | None:
    """Return why a list cannot be gathered in its order, or None if it can."""
    name = filled.name
    if len(filled.put) > 1 or not _is_in_every_turn(script, loop, filled.put[0][0]):
        return f"{name} is not filled once in every batch"
    _, value, many = filled.put[0]
    nested = isinstance(value, _NESTED) or _NEST.match(script.code(value))
    if nested and not is_on_host(work, script, value):
        return f"{name} may hold tensors on a GPU"
    names = [n for n in walk_shallow(loop.body) if isinstance(n, cst.Name | cst.Attribute)]
    uses = [n for n in names if script.code(n) == name]
    if many and len(uses) > 1:
        return f"{name} is read as it grows"
    return None


def _is_in_every_turn(script: Script, loop: cst.For, part: cst.CSTNode) -> bool:
    """Return whether a statement runs exactly once in every turn of a loop."""
    if any(isinstance(node, cst.Continue) for node in walk_shallow(loop.body)):
        return False
    return next(p for p in script.above(part) if not isinstance(p, _PLAIN)) is loop


def bring_together(work: Work, script: Script, filled: Filled) -> str:
    """Make each batch fill the list with one item; return the line that gathers all of them."""
    ((part, value, many),) = filled.put
    work.need("all_gather")
    if not is_on_host(work, script, value):
        # This form of the helper moves tensors.
        work.need("all_gather tensors")
    if not many:
        return f"{filled.name} = {work.all_gather}({filled.name})"
    if isinstance(part, cst.Call):
        assert isinstance(part.func, cst.Attribute)
        work.draft.replace(part.func.attr, "append")
    else:
        work.draft.replace(part, f"{filled.name}.append({script.code(value)})")
    return (
        f"{filled.name} = [value for batch in {work.all_gather}({filled.name}) for value in batch]"
    )


def is_on_host(work: Work, script: Script, value: cst.CSTNode) -> bool:
    """Return whether a value is certainly not on the GPU."""
    if constant(value) is not ...:
        return True
    if isinstance(value, cst.Tuple | cst.List | cst.Dict):
        return all(is_on_host(work, script, element.value) for element in value.elements)
    if _ON_HOST.search(script.code(value)):
        return True
    if not isinstance(value, cst.Name):
        return False
    origins = [o for o in work.project.origins(script, value) if o.node is not value]
    return bool(origins) and all(_ON_HOST.search(o.script.code(o.node)) for o in origins)
