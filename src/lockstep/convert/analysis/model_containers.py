"""Find variables that hold several models, in a list or a dictionary."""

from __future__ import annotations

import libcst as cst

from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.tree import EACH, argument, dotted, parts


def kind_of(value: cst.CSTNode | None) -> str:
    """Return `list` or `dict`, if a value is written as one."""
    if isinstance(value, cst.List | cst.ListComp):
        return "list"
    return "dict" if isinstance(value, cst.Dict | cst.DictComp) else ""


def elements(project: Project, script: Script, value: cst.CSTNode) -> list[cst.Call]:
    """Return the calls that make the elements; [] unless all of them are models made in place."""
    found = []
    for element in parts(value, EACH):
        name = project.name(script, element.func) if isinstance(element, cst.Call) else None
        if not isinstance(element, cst.Call) or (name or "").endswith("Loss"):
            return []
        found.append(element)
    return found


def container_of(
    project: Project, script: Script, node: cst.CSTNode, depth: int = 4
) -> tuple[Script, cst.CSTNode] | None:
    """Return `models`, for `models[0]`, `for model in models`, or a parameter that is given one."""
    if isinstance(node, cst.Subscript):
        return script, node.value
    found = script.scope_of(node).find(node.value) if isinstance(node, cst.Name) else None
    for binding in found[1] if found and depth else ():
        loop = binding.node
        if isinstance(loop, cst.For | cst.CompFor):
            around = loop if isinstance(loop, cst.For) else script.parents[loop]
            if script.inside(node, around):
                inner = _iterated(loop.iter, binding.index)
                return (script, inner) if inner is not None else None
        elif binding.kind == "parameter" and isinstance(node, cst.Name):
            function = script.function_of(loop)
            given = project.arguments(script, function, node.value) if function else []
            for where, value in given:
                outer = container_of(project, where, value, depth - 1)
                if outer is not None:
                    return outer
    return None


def _iterated(node: cst.CSTNode, index: tuple[int | str, ...]) -> cst.CSTNode | None:
    """Return what a loop takes its element from: one argument of `zip(models, optimizers)`."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and not node.args:
        wanted = {"items": (1,), "values": ()}.get(node.func.attr.value)
        return node.func.value if wanted == index else None
    name = dotted(node.func) if isinstance(node, cst.Call) else None
    if isinstance(node, cst.Call) and name == "enumerate" and index[:1] == (1,):
        inner = argument(node, "iterable", 0)
        return _iterated(inner, index[1:]) if inner is not None else None
    if isinstance(node, cst.Call) and name == "zip" and index and isinstance(index[0], int):
        inner = argument(node, "", index[0])
        return _iterated(inner, index[1:]) if inner is not None else None
    return node if not index and dotted(node) is not None else None
