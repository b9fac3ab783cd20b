"""Find the names that an expression uses and that a statement sets."""

from __future__ import annotations

import libcst as cst

from lockstep.source.tree import children, dotted


def mentions(node: cst.CSTNode, names: set[str], calls: set[cst.CSTNode]) -> bool:
    """Return whether an expression contains one of these names or calls."""
    if node in calls:
        return True
    if isinstance(node, cst.Name | cst.Attribute) and dotted(node) in names:
        return True
    # In `out.loss` and `f(loss=x)`, `loss` is not a variable.
    return any(
        mentions(child, names, calls)
        for child in children(node)
        if child is not getattr(node, "attr", None) and child is not getattr(node, "keyword", None)
    )


def base(target: cst.CSTNode) -> str | None:
    """Return `stats`, for `stats["loss"]`."""
    while isinstance(target, cst.Subscript):
        target = target.value
    return dotted(target)


def targets(target: cst.CSTNode) -> set[str]:
    """Return the names that an assignment to a target sets."""
    if isinstance(target, cst.Tuple | cst.List):
        return {name for element in target.elements for name in targets(element.value)}
    name = base(target)
    return {name} if name is not None else set()


def assigned(node: cst.CSTNode, names: set[str], calls: set[cst.CSTNode]) -> set[str]:
    """Return the names that get a value computed from these."""
    if isinstance(node, cst.Assign) and mentions(node.value, names, calls):
        return {name for target in node.targets for name in targets(target.target)}
    if not isinstance(node, cst.AnnAssign | cst.AugAssign | cst.NamedExpr) or node.value is None:
        return set()
    return targets(node.target) if mentions(node.value, names, calls) else set()
