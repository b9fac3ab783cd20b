"""Find the value from which a loop starts to add: made before the loop, zero or empty."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from lockstep.convert.analysis.blocks import statement_of
from lockstep.source.name_uses import mentions
from lockstep.source.script import Script
from lockstep.source.tree import constant, parts, walk_shallow

_ZEROS = {"zeros", "zeros_like", "new_zeros"}
_SAME = {"to", "cuda", "cpu", "float", "double", "long", "int"}
_MADE = {"tensor", "array", "as_tensor", "float", "int", "list", "dict", "asarray"}


def start_of(script: Script, loop: cst.For, name: str) -> cst.CSTNode | None:
    """Return the last value that a name gets before a loop, each time the loop begins."""
    found: cst.CSTNode | None = None
    for part in _before(script, loop):
        if isinstance(part, cst.Assign):
            for target in part.targets:
                found = _value(script, target.target, part.value, name) or found
        elif isinstance(part, cst.AnnAssign) and part.value is not None:
            found = _value(script, part.target, part.value, name) or found
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
    if isinstance(target, cst.Tuple | cst.List):
        if not isinstance(value, cst.Tuple | cst.List):
            return None
        if len(value.elements) != len(target.elements):
            return None
        for left, right in zip(target.elements, value.elements, strict=True):
            found = _value(script, left.value, right.value, name)
            if found is not None:
                return found
        return None
    return value if script.code(target) == name else None


def is_zero(node: cst.CSTNode | None) -> bool:
    """Return whether a value is zero, or made of zeros only."""
    if node is None:
        return False
    if constant(node) is not ...:
        return constant(node) == 0 and constant(node) is not False
    if isinstance(node, cst.List | cst.Tuple):
        return bool(node.elements) and all(is_zero(e.value) for e in node.elements)
    if isinstance(node, cst.Dict):
        return bool(node.elements) and all(is_zero(e.value) for e in node.elements)
    if isinstance(node, cst.ListComp | cst.GeneratorExp):
        return is_zero(node.elt)
    if isinstance(node, cst.DictComp):
        return is_zero(node.value)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        return isinstance(node.left, cst.List) and is_zero(node.left)
    if not isinstance(node, cst.Call):
        return False
    last = node.func.attr.value if isinstance(node.func, cst.Attribute) else node.func
    last = last.value if isinstance(last, cst.Name) else last
    if last in _ZEROS:
        return True
    if last in _SAME and isinstance(node.func, cst.Attribute):
        return is_zero(node.func.value)
    if last == "fromkeys":
        return len(node.args) == 2 and is_zero(node.args[1].value)
    if last == "dict":
        return bool(node.args) and all(a.keyword and is_zero(a.value) for a in node.args)
    return last in _MADE and (bool(node.args) and is_zero(node.args[0].value))


def is_empty_list(node: cst.CSTNode | None) -> bool:
    """Return whether a value is `[]` or `list()`."""
    if isinstance(node, cst.List):
        return not node.elements
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value == "list"
        and not node.args
    )


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
