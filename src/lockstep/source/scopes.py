"""Find the places where names get their values: in a module, a class or a function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import libcst as cst

from lockstep.source.tree import EACH, constant, dotted


@dataclass(frozen=True, eq=False)
class Binding:
    """A place where a name gets a value."""

    kind: str
    """One of assign, augment, loop, with, parameter, function, class, import, item, other."""
    node: cst.CSTNode
    """The statement, or the parameter."""
    value: cst.CSTNode | None = None
    """The expression that the name gets, if there is one."""
    index: tuple[int | str, ...] = ()
    """The part of that expression, where several names are assigned at once."""
    path: str = ""
    """For an import, what it names, such as torch.nn.functional."""


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
    """Values that are put into containers, by the container's name: `loaders["train"] = ...`."""

    def bind(self, name: str, binding: Binding) -> None:
        """Note a place where `name` gets a value."""
        scope: Scope = self
        if name in self.globals:
            while scope.parent is not None:
                scope = scope.parent
        elif name in self.nonlocals and self.parent is not None:
            found = self.parent.find(name)
            scope = found[0] if found else self.parent
        scope.bindings.setdefault(name, []).append(binding)

    def find(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """Return the scope that knows a name, seen from here; methods do not see their class."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or scope.kind != "class"):
                return scope, scope.bindings[name]
            scope = scope.parent
        return None

    def put(self, name: str) -> Iterator[Binding]:
        """Yield all values that are put into a container, seen from here."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.items.get(name, ())
            scope = scope.parent


BINDERS = {
    cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.WithItem,
    cst.Global, cst.Nonlocal, cst.Import, cst.ImportFrom, cst.ExceptHandler, cst.MatchAs,
    cst.MatchStar,
}  # fmt: skip
"""Nodes that give values to names."""


def bind(node: cst.CSTNode, scope: Scope) -> None:
    """Note the names that a node gives values to."""
    if isinstance(node, cst.Assign):
        for target in node.targets:
            _bind_target(target.target, Binding("assign", node, node.value), scope)
    elif isinstance(node, cst.AnnAssign | cst.NamedExpr) and node.value is not None:
        _bind_target(node.target, Binding("assign", node, node.value), scope)
    elif isinstance(node, cst.AugAssign):
        _bind_target(node.target, Binding("augment", node, node.value), scope)
    elif isinstance(node, cst.For | cst.CompFor):
        _bind_target(node.target, Binding("loop", node, node.iter), scope)
    elif isinstance(node, cst.WithItem) and node.asname is not None:
        _bind_target(node.asname.name, Binding("with", node, node.item), scope)
    elif isinstance(node, cst.Global):
        scope.globals.update(item.name.value for item in node.names)
    elif isinstance(node, cst.Nonlocal):
        scope.nonlocals.update(item.name.value for item in node.names)
    elif isinstance(node, cst.Import | cst.ImportFrom):
        _bind_imports(node, scope)
    elif isinstance(node, cst.MatchAs | cst.MatchStar) and node.name is not None:
        scope.bind(node.name.value, Binding("other", node))
    elif isinstance(node, cst.ExceptHandler) and node.name is not None:
        _bind_target(node.name.name, Binding("other", node), scope)


def _bind_target(target: cst.CSTNode, binding: Binding, scope: Scope) -> None:
    index = binding.index
    if isinstance(target, cst.Name):
        scope.bind(target.value, binding)
    elif isinstance(target, cst.Attribute):
        # `self.model = ...` is kept under its dotted name, in the scope of the class.
        name = dotted(target)
        if name is not None:
            _owner(name, scope).bind(name, binding)
    elif isinstance(target, cst.Tuple | cst.List):
        for number, element in enumerate(target.elements):
            if isinstance(element, cst.StarredElement):
                # The elements after a star count from the end, so their index is unknown.
                for other in target.elements[number:]:
                    _bind_target(other.value, Binding("other", binding.node), scope)
                break
            _bind_target(element.value, replace(binding, index=(*index, number)), scope)
    elif isinstance(target, cst.Subscript) and binding.kind == "assign" and not index:
        name = dotted(target.value)
        place = target.slice[0].slice
        key = constant(place.value) if isinstance(place, cst.Index) else ...
        if name is not None:
            which = (key if isinstance(key, int | str) else EACH,)
            found = replace(binding, kind="item", index=which)
            _owner(name, scope).items.setdefault(name, []).append(found)


def _owner(name: str, scope: Scope) -> Scope:
    """Return the scope of a name: for `self.x` that of the class, whichever method sets it."""
    while scope.kind == "function" and name.startswith("self.") and scope.parent:
        scope = scope.parent
    return scope


def _bind_imports(node: cst.Import | cst.ImportFrom, scope: Scope) -> None:
    before = ""
    if isinstance(node, cst.ImportFrom):
        before = "." * len(node.relative) + ((dotted(node.module) or "") if node.module else "")
    if isinstance(node.names, cst.ImportStar):
        scope.bind("*", Binding("import", node, path=before))
        return
    before += "" if before.endswith(".") or not before else "."
    for alias in node.names:
        path = dotted(alias.name) or ""
        bound = path
        if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
            bound = alias.asname.name.value
        elif isinstance(node, cst.Import):
            # `import torch.nn` binds torch.
            bound = path = path.split(".")[0]
        scope.bind(bound, Binding("import", node, path=f"{before}{path}"))


def bind_parameters(parameters: cst.Parameters, scope: Scope) -> None:
    """Note the parameters of a function, with their defaults."""
    every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
    for star in (parameters.star_arg, parameters.star_kwarg):
        if isinstance(star, cst.Param):
            every.append(star)
    for parameter in every:
        scope.bind(parameter.name.value, Binding("parameter", parameter, parameter.default))
