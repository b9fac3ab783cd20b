"""One file: its text, its tree, who is whose parent, and which names mean what where."""

from __future__ import annotations

import json
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from lockstep.errors import SourceError
from lockstep.source.tree import children, dotted

MOST_BYTES = 2_000_000
"""A larger file was not written by hand."""


@dataclass(frozen=True, eq=False)
class Binding:
    """A place where a name gets a value."""

    kind: str
    """assign, augment, loop, with, parameter, function, class, import, other."""
    node: cst.CSTNode
    """The statement, or the parameter."""
    value: cst.CSTNode | None = None
    """The expression that it gets, if there is one."""
    index: tuple[int, ...] = ()
    """Which part of it, where several names are assigned at once."""
    path: str = ""
    """Of an import: what it names, such as torch.nn.functional."""


@dataclass(eq=False)
class Scope:
    """A module, a class or a function: names and their bindings."""

    kind: str
    node: cst.CSTNode
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)

    def bind(self, name: str, binding: Binding) -> None:
        """One more place where `name` gets a value."""
        scope: Scope = self
        if name in self.globals:
            while scope.parent is not None:
                scope = scope.parent
        scope.bindings.setdefault(name, []).append(binding)

    def find(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """The scope that knows the name, seen from here; methods do not see their class."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or scope.kind != "class"):
                return scope, scope.bindings[name]
            scope = scope.parent
        return None


class Script:
    """A script that was read; equal nodes are told apart by identity."""

    def __init__(self, path: Path, text: str, tree: cst.Module, lines: list[str] | None = None):
        self.path, self.text, self.tree = path, text, tree
        self.places = lines
        """For a notebook: where each line comes from."""
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.order: dict[cst.CSTNode, int] = {}
        self.scopes: dict[cst.CSTNode, Scope] = {}
        """Of each function, class and module: the scope that it makes."""
        self._around: dict[cst.CSTNode, Scope] = {}
        self.top = Scope("module", tree, None)
        self.scopes[tree] = self.top
        self._index(tree, self.top)
        self.calls = [node for node in self.order if isinstance(node, cst.Call)]

    def scope_of(self, node: cst.CSTNode) -> Scope:
        """The scope that a node stands in."""
        return self._around[node]

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Parents, the nearest first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function_of(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The function that a node stands in."""
        return next((n for n in self.above(node) if isinstance(n, cst.FunctionDef)), None)

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The class that a node stands in."""
        return next((n for n in self.above(node) if isinstance(n, cst.ClassDef)), None)

    def inside(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Whether `node` is somewhere below `outer`."""
        return any(parent is outer for parent in self.above(node))

    def later(self, node: cst.CSTNode, than: cst.CSTNode) -> bool:
        """Whether a statement has not yet run when a place of its function is first come to."""
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

    def statement_of(self, node: cst.CSTNode) -> cst.CSTNode:
        """The whole statement that a node is part of."""
        for parent in (node, *self.above(node)):
            if isinstance(parent, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                return parent
        return node

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node."""
        return self.tree.code_for_node(node)

    @cached_property
    def _positions(self) -> Any:
        return MetadataWrapper(self.tree, unsafe_skip_copy=True).resolve(PositionProvider)

    def place(self, node: cst.CSTNode) -> CodeRange:
        """First and last line and column; found when somebody asks, which is rare."""
        return self._positions[node]

    def _index(self, node: cst.CSTNode, scope: Scope) -> None:
        """Note parents, order and names, and go down."""
        self.order[node] = len(self.order)
        self._around[node] = scope
        inner = scope
        if isinstance(node, cst.FunctionDef | cst.Lambda):
            if isinstance(node, cst.FunctionDef):
                scope.bind(node.name.value, Binding("function", node))
            inner = Scope("function", node, scope)
            self.scopes[node] = inner
            self._index_parameters(node.params, inner)
        elif isinstance(node, cst.ClassDef):
            scope.bind(node.name.value, Binding("class", node))
            inner = Scope("class", node, scope)
            self.scopes[node] = inner
        else:
            _bind(node, scope)
        for child in children(node):
            self.parents[child] = node
            # Decorators, defaults and base classes belong to the outside.
            outside = inner is not scope and child is not getattr(node, "body", None)
            self._index(
                child, scope if outside and not isinstance(child, cst.Parameters) else inner
            )

    def _index_parameters(self, parameters: cst.Parameters, scope: Scope) -> None:
        every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
        for star in (parameters.star_arg, parameters.star_kwarg):
            if isinstance(star, cst.Param):
                every.append(star)
        for parameter in every:
            scope.bind(parameter.name.value, Binding("parameter", parameter, parameter.default))


def _bind(node: cst.CSTNode, scope: Scope) -> None:
    if isinstance(node, cst.Assign):
        for target in node.targets:
            _bind_target(target.target, "assign", node, node.value, (), scope)
    elif isinstance(node, cst.AnnAssign) and node.value is not None:
        _bind_target(node.target, "assign", node, node.value, (), scope)
    elif isinstance(node, cst.AugAssign):
        _bind_target(node.target, "augment", node, node.value, (), scope)
    elif isinstance(node, cst.NamedExpr):
        _bind_target(node.target, "assign", node, node.value, (), scope)
    elif isinstance(node, cst.For | cst.CompFor):
        _bind_target(node.target, "loop", node, node.iter, (), scope)
    elif isinstance(node, cst.WithItem) and node.asname is not None:
        _bind_target(node.asname.name, "with", node, node.item, (), scope)
    elif isinstance(node, cst.Global):
        scope.globals.update(item.name.value for item in node.names)
    elif isinstance(node, cst.Import | cst.ImportFrom):
        _bind_imports(node, scope)
    elif isinstance(node, cst.ExceptHandler) and node.name is not None:
        _bind_target(node.name.name, "other", node, None, (), scope)


def _bind_target(
    target: cst.CSTNode,
    kind: str,
    node: cst.CSTNode,
    value: cst.CSTNode | None,
    index: tuple[int, ...],
    scope: Scope,
) -> None:
    if isinstance(target, cst.Name):
        scope.bind(target.value, Binding(kind, node, value, index))
    elif isinstance(target, cst.Attribute):
        # `self.model = ...`: under its dotted name, looked for in all of the class.
        name = dotted(target)
        if name is not None:
            owner = scope
            while owner.kind == "function" and name.startswith("self.") and owner.parent:
                owner = owner.parent
            owner.bind(name, Binding(kind, node, value, index))
    elif isinstance(target, cst.Tuple | cst.List):
        for number, element in enumerate(target.elements):
            _bind_target(element.value, kind, node, value, (*index, number), scope)


def _bind_imports(node: cst.Import | cst.ImportFrom, scope: Scope) -> None:
    if isinstance(node, cst.Import):
        for alias in node.names:
            path = dotted(alias.name) or ""
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                scope.bind(alias.asname.name.value, Binding("import", node, path=path))
            else:
                # `import torch.nn` binds torch.
                first = path.split(".")[0]
                scope.bind(first, Binding("import", node, path=first))
        return
    module = "." * len(node.relative) + ((dotted(node.module) or "") if node.module else "")
    if isinstance(node.names, cst.ImportStar):
        scope.bind("*", Binding("import", node, path=module))
        return
    for alias in node.names:
        name = dotted(alias.name) or ""
        bound = name
        if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
            bound = alias.asname.name.value
        joint = "" if module.endswith(".") or not module else "."
        scope.bind(bound, Binding("import", node, path=f"{module}{joint}{name}"))


def read_script(path: Path) -> Script:
    """Read a file, or say what keeps it from being read."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SourceError(
                f"{path} has {path.stat().st_size / 1e6:.1f} MB: more than a person writes. Name "
                "the script itself."
            )
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
    if path.suffix == ".ipynb":
        text, places = _cells(path, content)
        return parse(path, text, places)
    return parse(path, decoded(path, content))


def decoded(path: Path, content: bytes) -> str:
    """The text, in the encoding that its first lines name."""
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        return content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceError(
            f"{path} is not text in {getattr(error, 'encoding', 'a known encoding')}. Save it as "
            "UTF-8, or name its encoding in the first line."
        ) from None


def parse(path: Path, text: str, places: list[str] | None = None) -> Script:
    """A script from its text."""
    try:
        return Script(path, text, cst.parse_module(text), places)
    except cst.ParserSyntaxError as error:
        line = error.editor_line
        where = places[line - 1] if places and line <= len(places) else f"line {line}"
        source = text.splitlines()[line - 1].strip() if line <= len(text.splitlines()) else ""
        old = re.match(r"(print|exec)\s+[^(=\s]|except\s+[\w.]+\s*,", source)
        hint = " It looks like Python 2." if old else ""
        raise SourceError(f"{path}, {where}: not Python: {source!r}.{hint}") from None
    except RecursionError:
        raise SourceError(f"{path} is nested too deeply to be read.") from None


def _cells(path: Path, content: bytes) -> tuple[str, list[str]]:
    """The code of a notebook as one script; magic lines become comments."""
    try:
        cells = json.loads(content)["cells"]
    except (ValueError, KeyError, TypeError):
        raise SourceError(f"{path} is not a notebook: no JSON with cells in it.") from None
    lines: list[str] = []
    places: list[str] = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        text = source if isinstance(source, str) else "".join(map(str, source))
        if text.lstrip().startswith("%%") and not text.lstrip().startswith("%%time"):
            continue
        for line, content_line in enumerate(text.splitlines(), 1):
            magic = content_line.lstrip().startswith(("%", "!", "?"))
            lines.append("# " + content_line if magic else content_line)
            places.append(f"cell {number}, line {line}")
    return "\n".join(lines) + "\n", places
