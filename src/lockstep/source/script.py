"""One file: its text, its tree, the parents of nodes, and the names in its scopes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from lockstep.source.scopes import BINDERS, Binding, Scope, bind, bind_parameters
from lockstep.source.tree import children, walk


def lines_of(text: str) -> list[str]:
    """Return the lines that Python counts, without their ends; str.splitlines counts form feeds.

    >>> lines_of("a\\x0cb\\r\\nc")
    ['a\\x0cb', 'c']
    """
    return re.split(r"\r\n|\r|\n", text)


class Script:
    """A script that was read. Nodes are compared by identity."""

    def __init__(self, path: Path, text: str, tree: cst.Module, lines: list[str] | None = None):
        self.path, self.text, self.tree = path, text, tree
        self.places = lines
        """For a notebook, the cell and line that each line comes from."""
        self.encoding = "utf-8"
        """Encoding of the file, with its byte order mark if it has one."""
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.order: dict[cst.CSTNode, int] = {}
        self.scopes: dict[cst.CSTNode, Scope] = {}
        """The scope that each function, class and module makes."""
        self._around: dict[cst.CSTNode, Scope] = {}
        self._functions: dict[cst.CSTNode, cst.FunctionDef | None] = {}
        self.top = Scope("module", tree, None)
        self.scopes[tree] = self.top
        self.calls: list[cst.Call] = []
        self.memo: dict[object, Any] = {}
        """Answers that others keep about this script, for as long as it lives."""
        self._index(tree)

    @cached_property
    def lines(self) -> list[str]:
        """The lines of its text."""
        return lines_of(self.text)

    @cached_property
    def folder(self) -> str:
        """The folder of the file."""
        return str(self.path.parent)

    @cached_property
    def _methods(self) -> dict[str, list[cst.Call]]:
        found: dict[str, list[cst.Call]] = {}
        for call in self.calls:
            if type(call.func) is cst.Attribute:
                found.setdefault(call.func.attr.value, []).append(call)
        return found

    @cached_property
    def set_attributes(self) -> dict[str, list[tuple[cst.Assign, cst.Attribute]]]:
        """The assignments to attributes of any object, by the attribute's name."""
        found: dict[str, list[tuple[cst.Assign, cst.Attribute]]] = {}
        for node in self.order:
            if type(node) is cst.Assign:
                for each in node.targets:
                    if isinstance(each.target, cst.Attribute):
                        name = each.target.attr.value
                        found.setdefault(name, []).append((node, each.target))
        return found

    def named_last(self, *names: str) -> list[cst.Call]:
        """Return the calls of methods with these names, on any object, in the order of the text."""
        found = [call for name in dict.fromkeys(names) for call in self._methods.get(name, ())]
        return found if len(names) == 1 else sorted(found, key=self.order.__getitem__)

    def scope_of(self, node: cst.CSTNode) -> Scope:
        """Return the scope that holds a node; of a node that is not in the text, the module's."""
        return self._around.get(node, self.top)

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the parents of a node, the nearest first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function_of(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the function that holds a node."""
        if node not in self._functions:
            found = next((n for n in self.above(node) if isinstance(n, cst.FunctionDef)), None)
            self._functions[node] = found
        return self._functions[node]

    def methods(self, owner: cst.ClassDef, name: str) -> list[cst.FunctionDef]:
        """Return the methods of a class with this name: several, if they are under an `if`."""
        bindings = self.scopes[owner].bindings.get(name, [])
        return [b.node for b in bindings if isinstance(b.node, cst.FunctionDef)]

    @cached_property
    def imports(self) -> list[str]:
        """The paths that the script imports, in any scope."""
        scopes = self.scopes.values()
        every = (b for scope in scopes for bound in scope.bindings.values() for b in bound)
        return [binding.path for binding in every if binding.kind == "import"]

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """Return the class that holds a node."""
        return next((n for n in self.above(node) if isinstance(n, cst.ClassDef)), None)

    def inside(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Return whether `node` is below `outer`."""
        return any(parent is outer for parent in self.above(node))

    def later(self, node: cst.CSTNode, than: cst.CSTNode) -> bool:
        """Return whether a statement has not run yet when its function first reaches a place."""
        if self.function_of(node) is not self.function_of(than):
            return False
        if self.order[node] < self.order[than] and not self.inside(than, node):
            return False
        for parent in self.above(node):
            if isinstance(parent, cst.For | cst.While) and self.inside(than, parent):
                return False
            if isinstance(parent, cst.FunctionDef):
                break
        return True

    def apart(self, one: cst.CSTNode, other: cst.CSTNode) -> bool:
        """Return whether two places are in different branches of one `if`."""
        above = set(self.above(other))
        for parent in self.above(one):
            if isinstance(parent, cst.If) and parent in above:
                sides = [self.inside(node, parent.body) for node in (one, other)]
                return sides[0] != sides[1]
            if isinstance(parent, cst.FunctionDef):
                return False
        return False

    def last(self, node: cst.CSTNode) -> int:
        """Return the place in `order` of the last node below a node."""
        return max(self.order[part] for part in walk(node))

    def statement_of(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the whole statement that holds a node."""
        for parent in (node, *self.above(node)):
            if isinstance(parent, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                return parent
        return node

    def code(self, node: cst.CSTNode) -> str:
        """Return the text of a node."""
        return self.tree.code_for_node(node)

    @cached_property
    def _positions(self) -> Any:
        return MetadataWrapper(self.tree, unsafe_skip_copy=True).resolve(PositionProvider)

    def place(self, node: cst.CSTNode) -> CodeRange:
        """Return the first and last line and column, computed on first use."""
        return self._positions[node]

    def span(self, node: cst.CSTNode) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the start and the end of a node, each as its line and column."""
        place = self.place(node)
        return (place.start.line, place.start.column), (place.end.line, place.end.column)

    def _index(self, tree: cst.CSTNode) -> None:
        """Note parents, order and names; without recursion, since a chain of elif may be long."""
        waiting = [(tree, self.top)]
        while waiting:
            node, scope = waiting.pop()
            self.order[node] = len(self.order)
            self._around[node] = scope
            inner = scope
            kind = type(node)
            if kind is cst.Call:
                self.calls.append(cast(cst.Call, node))
            elif kind in (cst.FunctionDef, cst.Lambda):
                if isinstance(node, cst.FunctionDef):
                    scope.bind(node.name.value, Binding("function", node))
                inner = Scope("function", node, scope)
                self.scopes[node] = inner
                bind_parameters(cast(cst.FunctionDef, node).params, inner)
            elif kind is cst.ClassDef:
                scope.bind(cast(cst.ClassDef, node).name.value, Binding("class", node))
                inner = Scope("class", node, scope)
                self.scopes[node] = inner
            elif kind in BINDERS:
                bind(node, scope)
            below = []
            for child in children(node):
                self.parents[child] = node
                place = inner
                if inner is not scope and child is not getattr(node, "body", None):
                    # Decorators, defaults and base classes belong to the outer scope.
                    place = inner if type(child) is cst.Parameters else scope
                below.append((child, place))
            waiting.extend(reversed(below))


@dataclass(frozen=True)
class Passage:
    """A call that a value comes out of, and the function that it runs."""

    function: cst.FunctionDef
    script: Script
    """The script of the call."""
    call: cst.Call


Via = tuple[Passage, ...]


@dataclass(frozen=True, eq=False)
class Origin:
    """An expression that a value may come from, and the script that it stands in."""

    script: Script
    node: cst.CSTNode
    index: tuple[int | str, ...] = ()
    """The part of the expression that is meant, if it gives several values."""
    via: Via = ()
    """The calls of functions that returned the value, outermost first."""

    @property
    def call(self) -> cst.Call | None:
        """The expression, if it is a call and its whole result is meant."""
        return self.node if isinstance(self.node, cst.Call) and not self.index else None


Use = tuple[Script, cst.Call]
"""A call, and the script that it stands in."""
Function = tuple[Script, cst.FunctionDef]
"""A function, and the script that defines it."""
Class = tuple[Script, cst.ClassDef]
"""A class, and the script that defines it."""
