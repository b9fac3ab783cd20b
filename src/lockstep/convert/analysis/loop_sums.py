"""Find what a loop adds up: numbers, tensors, arrays, items of lists; and where each sum starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import libcst as cst

from lockstep.convert.analysis.batch_kinds import MEAN, SUM, UNKNOWN, kind_without_mask
from lockstep.convert.analysis.blocks import (
    assigned_to,
    body_around,
    last_name,
    receiver,
    statement_of,
)
from lockstep.convert.work import Work
from lockstep.source.name_uses import base, mentions, targets
from lockstep.source.script import Script
from lockstep.source.tree import constant, dotted, parts, walk_shallow

_ZEROS = {"zeros", "zeros_like", "new_zeros"}
_SAME = {"to", "cuda", "cpu", "float", "double", "long", "int"}
_MADE = {"tensor", "array", "as_tensor", "float", "int", "list", "dict", "asarray"}
PER_SAMPLE = re.compile(r"\.size\(0\)|\.shape\[0\]|\blen\(|\.sum\(\)|\.size\(\)\[0\]|batch_size")
COUNT = "count"
_PLAIN = "{all_sum}({name})"
_LISTS = cst.List | cst.ListComp | cst.BinaryOperation


def start_of(script: Script, loop: cst.For, name: str) -> cst.CSTNode | None:
    """Return the last value that a name gets before a loop, each time the loop begins."""
    found: cst.CSTNode | None = None
    for part in _before(script, loop):
        if isinstance(part, cst.Assign | cst.AnnAssign) and part.value is not None:
            for target in assigned_to(part):
                found = _value(script, target, part.value, name) or found
        elif isinstance(part, cst.For | cst.While) and mentions(part, {name}, set()):
            # Another loop may have added to it.
            found = None
    return found


def is_called_before(script: Script, loop: cst.For, wanted: Callable[[cst.Call], bool]) -> bool:
    """Return whether a wanted call runs each time before the loop begins."""
    return any(isinstance(part, cst.Call) and wanted(part) for part in _before(script, loop))


def _before(script: Script, loop: cst.For) -> list[cst.CSTNode]:
    """Return what runs before a loop in the blocks around it, up to the next loop or function."""
    found: list[cst.CSTNode] = []
    node: cst.CSTNode = loop
    for parent in script.above(loop):
        if isinstance(parent, cst.IndentedBlock | cst.Module):
            block = list(parent.body)
            here = block.index(statement_of(script, node))  # type: ignore[arg-type]
            lines: list[cst.CSTNode] = []
            for statement in block[:here]:
                is_line = isinstance(statement, cst.SimpleStatementLine)
                lines += walk_shallow(statement) if is_line else [statement]
            found = lines + found
        if isinstance(parent, cst.For | cst.While | cst.FunctionDef | cst.ClassDef):
            break
        node = parent
    return found


def _value(
    script: Script, target: cst.CSTNode, value: cst.CSTNode, name: str
) -> cst.CSTNode | None:
    """Return what a name gets from an assignment, also from `a, b = 0, 0`."""
    if not isinstance(target, cst.Tuple | cst.List):
        return value if script.code(target) == name else None
    right = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
    if len(right) != len(target.elements):
        return None
    pairs = zip(target.elements, right, strict=True)
    found = (_value(script, a.value, b.value, name) for a, b in pairs)
    return next((one for one in found if one is not None), None)


def is_zero(node: cst.CSTNode | None) -> bool:
    """Return whether a value is zero, or made of zeros only."""
    if node is None:
        return False
    if constant(node) is not ...:
        return constant(node) == 0 and constant(node) is not False
    if isinstance(node, cst.List | cst.Tuple | cst.Dict):
        return bool(node.elements) and all(is_zero(e.value) for e in node.elements)
    if isinstance(node, cst.ListComp | cst.GeneratorExp):
        return is_zero(node.elt)
    if isinstance(node, cst.DictComp):
        return is_zero(node.value)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        return isinstance(node.left, cst.List) and is_zero(node.left)
    if not isinstance(node, cst.Call):
        return False
    last, owner = last_name(node), receiver(node)
    if last in _ZEROS:
        return True
    if last in _SAME and owner is not None:
        return is_zero(owner)
    if last == "fromkeys":
        return len(node.args) == 2 and is_zero(node.args[1].value)
    if last == "dict":
        return bool(node.args) and all(a.keyword and is_zero(a.value) for a in node.args)
    return last in _MADE and (bool(node.args) and is_zero(node.args[0].value))


def is_empty_list(node: cst.CSTNode | None) -> bool:
    """Return whether a value is `[]` or `list()`."""
    if isinstance(node, cst.List):
        return not node.elements
    return isinstance(node, cst.Call) and dotted(node.func) == "list" and not node.args


def entry(script: Script, loop: cst.For, place: cst.CSTNode) -> cst.CSTNode | None:
    """Return the first value of a name, an attribute, or an item of a dictionary."""
    found = start_of(script, loop, script.code(place))
    if found is not None or not isinstance(place, cst.Subscript):
        return found
    within = start_of(script, loop, script.code(place.value))
    key = key_of(place)
    if within is None or not isinstance(key, int | str):
        return None
    chosen = parts(within, key)
    return chosen[0] if len(chosen) == 1 else None


def key_of(place: cst.Subscript) -> object:
    """Return the literal key or index of an item; `...` for a computed one."""
    inner = place.slice[0].slice if len(place.slice) == 1 else None
    return constant(inner.value) if isinstance(inner, cst.Index) else ...


@dataclass(eq=False)
class Sum:
    """A value that a loop adds to."""

    name: str
    """Its name in the script: `total`, `self.hits`, `totals["loss"]`."""
    start: cst.CSTNode | None
    """Its value before the loop; None if the loop does not start from a new one."""
    form: str = _PLAIN
    """The expression that adds it up over all processes."""
    added: list[tuple[cst.CSTNode, cst.BaseExpression]] = field(default_factory=list)
    """The statements that add to it, each with the value that it adds."""

    def line(self, work: Work, factor: str = "") -> str:
        """Return the line that replaces the value by its sum over all processes."""
        value = self.form.format(all_sum=work.all_sum, name=self.name)
        return f"{self.name} = {value}{factor}"


def sums_of(script: Script, loop: cst.For) -> dict[str, Sum]:
    """Return the older values that a loop adds to, in the order of the text."""
    found: dict[str, Sum] = {}
    inside = bound_in(script, loop)
    for statement in walk_shallow(loop.body):
        added = addition(script, statement)
        if added is None or targets(added[0]) & inside or base(added[0]) is None:
            continue
        one = _sum(script, loop, added[0])
        if not is_empty_list(one.start):
            found.setdefault(one.name, one).added.append((statement, added[1]))
    return found


def form_of_tensor(script: Script, loop: cst.For, one: Sum) -> str:
    """Return the form for a number that becomes a tensor, except in a process without batches."""
    used = any(
        name == one.name and isinstance(script.parents.get(node), cst.Attribute)
        for node, name in read_after(script, loop)
    )
    turns = used and one.form == _PLAIN and constant(one.start) is not ...
    return "{all_sum}(torch.as_tensor({name}))" if turns else one.form


def addition(
    script: Script, statement: cst.CSTNode
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Return a and b, for `a += b` and `a = a + b`."""
    if isinstance(statement, cst.AugAssign) and isinstance(statement.operator, cst.AddAssign):
        return statement.target, statement.value
    if isinstance(statement, cst.Assign) and isinstance(statement.value, cst.BinaryOperation):
        target, value = statement.targets[0].target, statement.value
        plus = isinstance(value.operator, cst.Add) and len(statement.targets) == 1
        if plus and script.code(value.left) == script.code(target):
            return target, value.right
    return None


def _sum(script: Script, loop: cst.For, place: cst.BaseExpression) -> Sum:
    if not isinstance(place, cst.Subscript):
        start = start_of(script, loop, script.code(place))
        return Sum(script.code(place), start, _form(start))
    name = base(place) or ""
    start = start_of(script, loop, name)
    if isinstance(start, cst.Dict) and key_of(place) is not ... and base(place.value) == name:
        return Sum(script.code(place), entry(script, loop, place))
    last = (dotted(start.func) or "").rsplit(".", 1)[-1] if isinstance(start, cst.Call) else ""
    if isinstance(start, cst.Dict | cst.DictComp) or last in ("dict", "fromkeys"):
        form = "{{key: {all_sum}(value) for key, value in {name}.items()}}"
        return Sum(name, start, form)
    if isinstance(start, _LISTS) or last == "list":
        return Sum(name, start, "[{all_sum}(value) for value in {name}]")
    return Sum(name, start, _form(start))


def _form(start: cst.CSTNode | None) -> str:
    """Return the form for a start value; arrays of NumPy go through a tensor."""
    made = dotted(start.func) or "" if isinstance(start, cst.Call) else ""
    of_numpy = made.startswith(("np.", "numpy."))
    return "{all_sum}(torch.from_numpy({name})).numpy()" if of_numpy else _PLAIN


def bound_in(script: Script, loop: cst.For) -> set[str]:
    """Return the names that each turn of a loop sets, except by adding to them."""
    found = targets(loop.target)
    for part in walk_shallow(loop.body):
        if isinstance(part, cst.Assign) and addition(script, part) is None:
            found = found.union(*map(_names, assigned_to(part)))
        elif isinstance(part, cst.AnnAssign | cst.NamedExpr | cst.For):
            found |= _names(part.target)
        elif isinstance(part, cst.AsName):
            found |= _names(part.name)
    return found


def _names(target: cst.CSTNode) -> set[str]:
    """Return the plain names in a target; an item or an attribute belongs to an older value."""
    if isinstance(target, cst.Tuple | cst.List):
        return {name for element in target.elements for name in _names(element.value)}
    return {target.value} if isinstance(target, cst.Name) else set()


def read_after(script: Script, node: cst.For) -> list[tuple[cst.CSTNode, str]]:
    """Return the names that the function reads after a loop with the value they have from it."""
    around = set(script.above(node))
    last = script.last(node)
    found: list[tuple[cst.CSTNode, str]] = []
    stored: dict[str, list[tuple[cst.CSTNode | None, int]]] = {}
    """The blocks that set a name again, each with the place from which on they do."""
    for part in walk_shallow(body_around(script, node)):
        if script.order[part] <= last:
            continue
        if isinstance(part, cst.For):
            for name in targets(part.target):
                stored.setdefault(name, []).append((part, script.order[part]))
        if isinstance(part, cst.Assign):
            place = script.parents.get(statement_of(script, part)), script.last(part)
            for name in (name for target in assigned_to(part) for name in _names(target)):
                stored.setdefault(name, []).append(place)
        if not isinstance(part, cst.Name):
            continue
        parent = script.parents.get(part)
        is_part = getattr(parent, "attr", None) is part or getattr(parent, "keyword", None) is part
        is_own = _is_set(script, part) or _is_comprehended(script, part)
        blocks = around.union(script.above(part))
        is_new = any(
            block in blocks and script.order[part] > end
            for block, end in stored.get(part.value, ())
        )
        if not is_part and not is_own and not is_new:
            found.append((part, part.value))
    return found


def _is_set(script: Script, name: cst.Name) -> bool:
    """Return whether a name is the target of an assignment or a loop."""
    node: cst.CSTNode = name
    for parent in script.above(name):
        if isinstance(parent, cst.AssignTarget):
            return True
        if not isinstance(parent, cst.Element | cst.Tuple | cst.List):
            return isinstance(parent, cst.For) and parent.target is node
        node = parent
    return False


def _is_comprehended(script: Script, name: cst.Name) -> bool:
    """Return whether a comprehension around a name sets it."""
    for parent in script.above(name):
        inner = getattr(parent, "for_in", None)
        while isinstance(inner, cst.CompFor):
            if name.value in targets(inner.target):
                return True
            inner = inner.inner_for_in
        if isinstance(parent, cst.BaseSmallStatement):
            return False
    return False


def is_read_later(script: Script, loop: cst.For, name: str) -> bool:
    """Return whether something reads a name after a loop."""
    function = script.function_of(loop)
    name = name.split("[")[0]
    shared = function is not None and name in script.scopes[function].globals
    return "." in name or shared or any(other == name for _, other in read_after(script, loop))


def kind_of_sum(work: Work, script: Script, one: Sum) -> str:
    """Return what a loop adds up: SUM over samples, MEAN of batches, COUNT or UNKNOWN."""
    found = {kind_of_value(work, script, value) for _, value in one.added}
    return found.pop() if len(found) == 1 else UNKNOWN


def kind_of_value(work: Work, script: Script, value: cst.BaseExpression) -> str:
    """Return what one value is over a batch."""
    if constant(value) is not ...:
        return COUNT
    kind = kind_without_mask(work, script, value)
    # `criterion(x, y).sum().item()` is still a mean.
    plain = isinstance(value, cst.Call) and kind == MEAN
    if not plain and (PER_SAMPLE.search(script.code(value)) or _counts(work, script, value)):
        return SUM
    return kind


def _counts(work: Work, script: Script, value: cst.CSTNode) -> bool:
    """Return whether a value is `n` or `loss.item() * n`, where n is a count of this batch."""
    sides: tuple[cst.CSTNode, ...] = (value,)
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Multiply):
        sides = value.left, value.right
    names = [side for side in sides if isinstance(side, cst.Name)]
    origins = [o for name in names for o in work.project.origins(script, name)]
    return any(o.node not in names and PER_SAMPLE.search(o.script.code(o.node)) for o in origins)
