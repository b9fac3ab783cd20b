"""Find statements and the blocks that hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from lockstep.source.scopes import Binding
from lockstep.source.script import Script
from lockstep.source.tree import children, dotted, walk, walk_shallow


def statement_of(script: Script, node: cst.CSTNode) -> cst.CSTNode:
    """Return the statement that holds a node, and that has its lines to itself."""
    while not isinstance(script.parents[node], cst.IndentedBlock | cst.Module):
        node = script.parents[node]
    return node


def block_of(script: Script, statement: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the statements of the block that holds a statement."""
    return list(script.parents[statement].body)  # type: ignore[attr-defined]


def out_of_branches(script: Script, statement: cst.CSTNode) -> cst.CSTNode:
    """Return the outermost `if`, `try` or `with` around a statement, but stay inside loops."""
    while True:
        around: cst.CSTNode | None = None
        for parent in script.above(statement):
            if isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.For | cst.While):
                break
            if isinstance(parent, cst.If) and is_main_guard(parent):
                break
            if isinstance(parent, cst.If | cst.Try | cst.With):
                around = parent
                break
        if around is None:
            return statement
        statement = statement_of(script, around)


def is_main_guard(node: cst.CSTNode) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    return isinstance(node, cst.If) and any(
        isinstance(part, cst.Name) and part.value == "__name__" for part in walk(node.test)
    )


def receiver(node: cst.CSTNode | None, *names: str) -> cst.BaseExpression | None:
    """Return x, for the call `x.name()` of a method with one of these names, or with any name."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    return node.func.value if not names or node.func.attr.value in names else None


def last_name(call: cst.Call) -> str:
    """Return `add`, for `x.add()`, `f().add()` and `add()`."""
    func = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return func.value if isinstance(func, cst.Name) else ""


def assigned_to(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """Return what an assignment of any kind assigns to: a, b and c[0], for `a, b = c[0] = x`."""
    if isinstance(node, cst.Assign):
        return [target.target for target in node.targets]
    return [node.target] if isinstance(node, cst.AnnAssign | cst.AugAssign) else []


def bindings_of(script: Script, node: cst.CSTNode, name: str | None = None) -> list[Binding]:
    """Return all places where a name gets its value, by default the name that a node is."""
    found = script.scope_of(node).find(name or dotted(node) or "")
    return found[1] if found is not None else []


def body_around(script: Script, node: cst.CSTNode) -> cst.CSTNode:
    """Return the body of the function that holds a node, or else the module."""
    function = script.function_of(node)
    return function.body if function is not None else script.tree


def calls_in(node: cst.CSTNode) -> Iterator[cst.Call]:
    """Yield the calls below a node, but not those in functions defined inside it."""
    return (part for part in walk_shallow(node) if isinstance(part, cst.Call))


def names_in(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, str]]:
    """Yield the names below a node; of `a.b.c` only the whole."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        name = dotted(part) if isinstance(part, cst.Name | cst.Attribute) else None
        if name is not None:
            yield part, name
            continue
        waiting.extend(
            child for child in children(part) if child is not getattr(part, "keyword", None)
        )


def runs(
    statements: Sequence[cst.CSTNode], wanted: set[cst.CSTNode]
) -> Iterator[list[cst.CSTNode]]:
    """Yield the wanted statements; neighbours come together in one list."""
    run: list[cst.CSTNode] = []
    for statement in statements:
        if statement in wanted:
            run.append(statement)
        elif run:
            yield run
            run = []
    if run:
        yield run


def imports(statement: cst.CSTNode) -> bool:
    """Return whether a statement, or one inside it, imports something."""
    return any(isinstance(part, cst.Import | cst.ImportFrom) for part in walk(statement))
