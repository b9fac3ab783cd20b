"""Find the loss that backward is called on, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import called
from lockstep.source.tree import children, dotted, returned


def loss_of(backward: cst.Call) -> cst.BaseExpression | None:
    """Return `loss`, for `loss.backward()` and `scaler.scale(loss).backward()`."""
    assert isinstance(backward.func, cst.Attribute)
    value = backward.func.value
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value != "scale" or not value.args:
            break
        value = value.args[0].value
    return value


def _stops(node: cst.CSTNode) -> bool:
    """Match `loss.data`, `loss.detach()` and `loss.item()`: no gradient flows through them."""
    if isinstance(node, cst.Call):
        node = node.func
        return isinstance(node, cst.Attribute) and node.attr.value in ("detach", "item")
    return isinstance(node, cst.Attribute) and node.attr.value == "data"


def feeding(
    training: Training, script: Script, node: cst.CSTNode
) -> Iterator[tuple[Script, cst.CSTNode]]:
    """Yield the expressions that make up a value: through names, operators, calls and returns."""
    seen: set[cst.CSTNode] = set()
    waiting = [(script, node, 0)]
    while waiting:
        where, part, depth = waiting.pop()
        if part in seen or depth > 40 or part not in where.order:
            continue
        if _stops(part):
            continue
        seen.add(part)
        yield where, part
        if isinstance(part, cst.Name) or (isinstance(part, cst.Attribute) and dotted(part)):
            name = dotted(part) or ""
            found = where.scope_of(part).find(name)
            owner = where.class_of(part) if name.startswith("self.") else None
            if found is None and owner is not None and name in where.scopes[owner].bindings:
                found = where.scopes[owner], where.scopes[owner].bindings[name]
            for binding in found[1] if found else ():
                if binding.kind in ("assign", "augment") and binding.value is not None:
                    waiting.append((where, binding.value, depth + 1))
            if found is None and isinstance(part, cst.Attribute):
                waiting.append((where, part.value, depth + 1))
            continue
        if isinstance(part, cst.Call):
            for other, function in called(training, where, part):
                for result in returned(function):
                    if result is not None:
                        waiting.append((other, result, depth + 1))
        waiting += [(where, child, depth + 1) for child in children(part)]
