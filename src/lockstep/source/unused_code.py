"""Find parts of a program that never run, because nothing that runs names them."""

from __future__ import annotations

import re
from typing import TypeGuard

import libcst as cst

from lockstep.source.conditions import starts_something
from lockstep.source.project import Project
from lockstep.source.script import Script
from lockstep.source.tree import code, statements, walk

_WRAPS = re.compile(r"no_grad|inference_mode|enable_grad|lru_cache|contextmanager|wraps|property")
"""Decorators that register nothing."""


def unused(project: Project) -> set[cst.CSTNode]:
    """Return definitions that nothing names; only names count, so it may miss some."""
    first, *others = project.scripts
    if first.path.name == "__init__.py":
        return set()
    words: set[str] = set()
    waiting: list[tuple[Script, cst.CSTNode]] = []
    if starts_something(first):
        waiting = _started(first, statements(first.tree), words, entry=True)
    else:
        # A library, or a program that a command of its package starts.
        words |= _words(first, first.tree)
    for script in others:
        waiting += _started(script, statements(script.tree), words)
    while True:
        named = [(s, n) for s, n in waiting if _is_definition(n) and n.name.value in words]
        if not named:
            return {node for _, node in waiting}
        waiting = [place for place in waiting if place not in named]
        for script, node in named:
            if isinstance(node, cst.ClassDef):
                for base in (*node.bases, *node.keywords):
                    words |= _words(script, base)
                waiting += _started(script, statements(node.body), words)
            else:
                words |= _words(script, node)


def _started(
    script: Script, body: list[cst.CSTNode], words: set[str], *, entry: bool = False
) -> list[tuple[Script, cst.CSTNode]]:
    """Note the names in what runs on import; return the definitions that do not run yet.

    Of the `entry` of a program, the block under `if __name__ == "__main__"` runs, too.
    """
    waiting: list[tuple[Script, cst.CSTNode]] = []
    for node in body:
        alone = not entry and isinstance(node, cst.If) and "__name__" in script.code(node.test)
        if alone or _is_definition(node):
            waiting.append((script, node))
        else:
            words |= _words(script, node)
    return waiting


def _is_definition(node: cst.CSTNode) -> TypeGuard[cst.FunctionDef | cst.ClassDef]:
    """Return whether a node runs only when named; dunder methods may run without a name."""
    if not isinstance(node, cst.FunctionDef | cst.ClassDef):
        return False
    # `model(x)` runs the `forward` of a module.
    if node.name.value.startswith("__") or node.name.value == "forward":
        return False
    return all(isinstance(d.decorator, cst.Name) or _WRAPS.search(code(d)) for d in node.decorators)


def _words(script: Script, node: cst.CSTNode) -> frozenset[str]:
    """Return the names in a statement; an import counts only if it gives another name."""
    key = ("words", node)
    if key not in script.memo:
        script.memo[key] = _named_in(script, node)
    found: frozenset[str] = script.memo[key]
    return found


def _named_in(script: Script, node: cst.CSTNode) -> frozenset[str]:
    if isinstance(node, cst.Import | cst.ImportFrom) and " as " not in script.code(node):
        return frozenset()
    if isinstance(node, cst.Assign) and script.code(node.targets[0].target) == "__all__":
        return frozenset()
    found = set()
    for part in walk(node):
        if isinstance(part, cst.Name):
            found.add(part.value)
        elif isinstance(part, cst.SimpleString):
            # A string may be a name, as in `getattr(module, "Trainer")`.
            found.add(part.value.strip("\"'"))
    return frozenset(found)
