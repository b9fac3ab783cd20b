"""One file: its text, its tree, who is whose parent, and which names mean what where."""

from __future__ import annotations

import ast
import json
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from lockstep.errors import SourceError
from lockstep.source.tree import children, constant, dotted

EACH = -1
"""In place of an index or a key: any of them."""
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
    index: tuple[int | str, ...] = ()
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
    nonlocals: set[str] = field(default_factory=set)
    items: dict[str, list[Binding]] = field(default_factory=dict)
    """What is put into containers, by their names: `loaders["train"] = ...`."""

    def bind(self, name: str, binding: Binding) -> None:
        """One more place where `name` gets a value."""
        scope: Scope = self
        if name in self.globals:
            while scope.parent is not None:
                scope = scope.parent
        elif name in self.nonlocals and self.parent is not None:
            found = self.parent.find(name)
            scope = found[0] if found else self.parent
        scope.bindings.setdefault(name, []).append(binding)

    def find(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """The scope that knows the name, seen from here; methods do not see their class."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or scope.kind != "class"):
                return scope, scope.bindings[name]
            scope = scope.parent
        return None

    def put(self, name: str) -> Iterator[Binding]:
        """All that is put into the container of a name, seen from here."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.items.get(name, ())
            scope = scope.parent


class Script:
    """A script that was read; equal nodes are told apart by identity."""

    def __init__(self, path: Path, text: str, tree: cst.Module, lines: list[str] | None = None):
        self.path, self.text, self.tree = path, text, tree
        self.places = lines
        """For a notebook: where each line comes from."""
        self.encoding = "utf-8"
        """Of the file; with its mark, if it begins with one."""
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self.order: dict[cst.CSTNode, int] = {}
        self.scopes: dict[cst.CSTNode, Scope] = {}
        """Of each function, class and module: the scope that it makes."""
        self._around: dict[cst.CSTNode, Scope] = {}
        self._functions: dict[cst.CSTNode, cst.FunctionDef | None] = {}
        self.top = Scope("module", tree, None)
        self.scopes[tree] = self.top
        self.calls: list[cst.Call] = []
        self._index(tree)

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text, without their ends: those that Python counts."""
        return re.split(r"\r\n|\r|\n", self.text)

    @cached_property
    def folder(self) -> str:
        """Where the file lies."""
        return str(self.path.parent)

    @cached_property
    def _methods(self) -> dict[str, list[cst.Call]]:
        found: dict[str, list[cst.Call]] = {}
        for call in self.calls:
            if type(call.func) is cst.Attribute:
                found.setdefault(call.func.attr.value, []).append(call)
        return found

    def named_last(self, *names: str) -> list[cst.Call]:
        """Calls of methods, whatever the object: `anything.name()`, in the order of the text."""
        found = [call for name in dict.fromkeys(names) for call in self._methods.get(name, ())]
        return found if len(names) == 1 else sorted(found, key=self.order.__getitem__)

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
        if node not in self._functions:
            found = next((n for n in self.above(node) if isinstance(n, cst.FunctionDef)), None)
            self._functions[node] = found
        return self._functions[node]

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

    def _index(self, tree: cst.CSTNode) -> None:
        """Note parents, order and names; without recursion, as a chain of elif may be long."""
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
                self._index_parameters(cast(cst.FunctionDef, node).params, inner)
            elif kind is cst.ClassDef:
                scope.bind(cast(cst.ClassDef, node).name.value, Binding("class", node))
                inner = Scope("class", node, scope)
                self.scopes[node] = inner
            elif kind in _BINDERS:
                _bind(node, scope)
            below = []
            for child in children(node):
                self.parents[child] = node
                place = inner
                if inner is not scope and child is not getattr(node, "body", None):
                    # Decorators, defaults and base classes belong to the outside.
                    place = inner if type(child) is cst.Parameters else scope
                below.append((child, place))
            waiting.extend(reversed(below))

    def _index_parameters(self, parameters: cst.Parameters, scope: Scope) -> None:
        every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
        for star in (parameters.star_arg, parameters.star_kwarg):
            if isinstance(star, cst.Param):
                every.append(star)
        for parameter in every:
            scope.bind(parameter.name.value, Binding("parameter", parameter, parameter.default))


_BINDERS = {
    cst.Assign,
    cst.AnnAssign,
    cst.AugAssign,
    cst.NamedExpr,
    cst.For,
    cst.CompFor,
    cst.WithItem,
    cst.Global,
    cst.Nonlocal,
    cst.Import,
    cst.ImportFrom,
    cst.ExceptHandler,
}


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
    elif isinstance(node, cst.Nonlocal):
        scope.nonlocals.update(item.name.value for item in node.names)
    elif isinstance(node, cst.Import | cst.ImportFrom):
        _bind_imports(node, scope)
    elif isinstance(node, cst.ExceptHandler) and node.name is not None:
        _bind_target(node.name.name, "other", node, None, (), scope)


def _bind_target(
    target: cst.CSTNode,
    kind: str,
    node: cst.CSTNode,
    value: cst.CSTNode | None,
    index: tuple[int | str, ...],
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
            if isinstance(element, cst.StarredElement):
                # What comes after it is counted from the end: nobody knows which it is.
                break
            _bind_target(element.value, kind, node, value, (*index, number), scope)
    elif isinstance(target, cst.Subscript) and kind == "assign" and not index:
        name = dotted(target.value)
        place = target.slice[0].slice
        key = constant(place.value) if isinstance(place, cst.Index) else ...
        if name is not None:
            owner = scope
            while owner.kind == "function" and name.startswith("self.") and owner.parent:
                owner = owner.parent
            found = Binding("item", node, value, (key if isinstance(key, int | str) else EACH,))
            owner.items.setdefault(name, []).append(found)


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
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SourceError(
            f"{path} cannot be read: {why}. Check its name and your rights, or leave it out."
        ) from None
    if len(content) > MOST_BYTES:
        raise SourceError(
            f"{path} has more than {MOST_BYTES / 1e6:g} MB: more than a person writes. Name the "
            "script itself."
        )
    if path.suffix == ".ipynb":
        text, places = _cells(path, content)
        return parse(path, text, places)
    script = parse(path, decoded(path, content))
    script.encoding = tokenize.detect_encoding(BytesIO(content).readline)[0]
    return script


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
    trouble = _trouble(path, text)
    try:
        return Script(path, text, cst.parse_module(text), places)
    except cst.ParserSyntaxError as error:
        # Python's own words are better, where it stumbles too: LibCST names no line for some.
        line = trouble.lineno if trouble and trouble.lineno else error.editor_line
        why = f" ({trouble.msg.rstrip('.')})" if trouble else ""
        where = places[line - 1] if places and line <= len(places) else f"line {line}"
        lines = re.split(r"\r\n|\r|\n", text)
        source = lines[line - 1].strip()[:80] if line <= len(lines) else ""
        old = _PYTHON_2.match(source)
        todo = (
            " It looks like Python 2: convert it to Python 3 first." if old else " Mend it first."
        )
        raise SourceError(f"{path}, {where}: not Python: {source!r}{why}.{todo}") from None
    except RecursionError:
        raise _too_deep(path) from None


_PYTHON_2 = re.compile(r"(print|exec)\s+[^(=\s]|except\s+[\w.]+\s*,|raise\s+\w+\s*,|.*\b0\d+\b")


def _too_deep(path: Path) -> SourceError:
    return SourceError(f"{path} is nested too deeply to be read. Leave it out, or take it apart.")


def _trouble(path: Path, text: str) -> SyntaxError | None:
    """What Python itself has against a text; LibCST's parser would crash where Python refuses."""
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise SourceError(
            f"{path}, line {line}: a null byte, so this is no script. Leave it out, or save it as "
            "UTF-8 text."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        if "too many nested" in error.msg or "too many indentation" in error.msg.lower():
            raise _too_deep(path) from None
        return error
    except (RecursionError, MemoryError):
        raise _too_deep(path) from None
    except ValueError as error:
        raise SourceError(f"{path} is not Python: {error}. Save it as UTF-8 text.") from None
    return None


def _cells(path: Path, content: bytes) -> tuple[str, list[str]]:
    """The code of a notebook as one script; lines for the notebook itself become comments."""
    try:
        cells = json.loads(content)["cells"]
        assert isinstance(cells, list)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError):
        raise SourceError(
            f"{path} is not a notebook: no JSON with cells in it. Open it in Jupyter and save it "
            "again."
        ) from None
    lines: list[str] = []
    places: list[str] = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        text = source if isinstance(source, str) else "".join(map(str, source))
        # `%%time` is above Python, `%%bash` is above something else.
        magic = _CELL_MAGIC.match(text)
        if magic is not None and magic[1] not in _PYTHON_MAGICS:
            continue
        inside = re.split(r"\r\n|\r|\n", text)
        if not _is_python(text):
            # A line that begins with % may also go on with a division.
            careful = _without_magic(inside, brackets=True)
            good = _is_python("\n".join(careful))
            inside = careful if good else _without_magic(inside, brackets=False)
        for line, content_line in enumerate(inside, 1):
            lines.append(content_line)
            places.append(f"cell {number}, line {line}")
    return "\n".join(lines) + "\n", places


_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_PYTHON_MAGICS = {"time", "timeit", "capture", "prun", "python", "python3"}
_LINE_MAGIC = re.compile(r"(\s*)(%|!|\?).*")
_ASSIGNED_MAGIC = re.compile(r"(\s*[\w., ]+=\s*)(!|%\w).*")
_HELP = re.compile(r"(\s*)[\w.]+\?\??\s*$")


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _without_magic(lines: list[str], *, brackets: bool) -> list[str]:
    """`!pip install`, `%time f()`, `files = !ls` and `f?` as Python that does nothing."""
    found = []
    depth = 0
    goes_on = False
    for line in lines:
        magic = _LINE_MAGIC.match(line) or _HELP.match(line)
        given = _ASSIGNED_MAGIC.match(line)
        if goes_on or (magic is not None and not (brackets and depth > 0)):
            # A block may hold nothing else.
            indent = magic[1] if magic is not None and not goes_on else ""
            found.append(f"# {line}" if goes_on else f"{indent}pass  # {line.strip()}")
            goes_on = line.rstrip().endswith("\\")
        elif given is not None and not (brackets and depth > 0):
            found.append(f"{given[1]}None  # {line[given.end(1) :]}")
        else:
            found.append(line)
            bare = _QUOTED.sub("", line)
            depth += sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
    return found


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|#.*")
