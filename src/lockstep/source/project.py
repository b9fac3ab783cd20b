"""Several scripts that import each other, and where the values in them come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from lockstep.errors import SourceError
from lockstep.source.script import Binding, Scope, Script, read_script
from lockstep.source.tree import argument, children, constant, dotted

DEEPEST = 24
"""Steps that a value is followed for."""


@dataclass(frozen=True, eq=False)
class Origin:
    """An expression that a value may come from, and the script that it stands in."""

    script: Script
    node: cst.CSTNode
    index: tuple[int, ...] = ()
    """Which part of it, if it gives several."""

    @property
    def call(self) -> cst.Call | None:
        """The expression, if it is a call whose result is meant as a whole."""
        return self.node if isinstance(self.node, cst.Call) and not self.index else None


class Project:
    """Scripts that are looked at together; others are read when they are imported."""

    def __init__(self, scripts: Sequence[Script], roots: Sequence[Path] = ()) -> None:
        self.scripts = list(scripts)
        self.roots = list(roots)
        self._modules: dict[Path, Script | None] = {s.path.resolve(): s for s in scripts}
        self._uses: dict[cst.CSTNode, list[tuple[Script, cst.Call]]] | None = None
        self._definitions: dict[
            cst.CSTNode, tuple[Script, cst.FunctionDef | cst.ClassDef] | None
        ] = {}

    # --- names ---

    def name(self, script: Script, node: cst.CSTNode) -> str | None:
        """What an expression names, in full: `DDP` is torch.nn.parallel.DistributedDataParallel.

        Functions and classes of the project are named `./file.py:name`.
        """
        return self._name(script, node, script.scope_of(node), 0)

    def _name(self, script: Script, node: cst.CSTNode, scope: Scope, depth: int) -> str | None:
        if depth > DEEPEST:
            return None
        if isinstance(node, cst.Attribute):
            owner = self._name(script, node.value, scope, depth + 1)
            return None if owner is None else f"{owner}.{node.attr.value}"
        if isinstance(node, cst.Call):
            called = self._name(script, node.func, scope, depth + 1)
            if called == "functools.partial" and node.args:
                return self._name(script, node.args[0].value, scope, depth + 1)
            return None
        if not isinstance(node, cst.Name):
            return None
        found = scope.find(node.value)
        if found is None:
            return self._starred(script, node.value, depth + 1)
        owner_scope, bindings = found
        for binding in bindings:
            if binding.kind == "import":
                return self._imported(script, binding.path, depth + 1)
            if binding.kind in ("function", "class"):
                return f"./{script.path.name}:{node.value}"
        if len(bindings) == 1 and bindings[0].kind == "assign" and not bindings[0].index:
            # `DDP = nn.parallel.DistributedDataParallel`
            value = bindings[0].value
            if isinstance(value, cst.Name | cst.Attribute | cst.Call):
                return self._name(script, value, owner_scope, depth + 1)
        return None

    def _imported(self, script: Script, path: str, depth: int) -> str:
        found = self._definition(script, path)
        if found is None:
            return path
        other, name = found
        if name is None:
            return path
        return self._name(other, cst.Name(name), other.top, depth) or path

    def _starred(self, script: Script, name: str, depth: int) -> str | None:
        for binding in script.top.bindings.get("*", []):
            other = self.module(script, binding.path)
            if other is not None and name in other.top.bindings:
                return self._name(other, cst.Name(name), other.top, depth)
            if other is None and binding.path.split(".")[0] == "torch":
                return f"{binding.path}.{name}"
        return None

    def module(self, script: Script, path: str) -> Script | None:
        """The script of the project that an import names."""
        level = len(path) - len(path.lstrip("."))
        parts = [part for part in path.lstrip(".").split(".") if part]
        folder = script.path.resolve().parent
        if level:
            starts = [folder.joinpath(*[".."] * (level - 1))]
        else:
            starts = [folder, *(root.resolve() for root in self.roots)]
        for start in starts:
            for place in (
                start.joinpath(*parts).with_suffix(".py") if parts else None,
                start.joinpath(*parts, "__init__.py"),
            ):
                if place is None:
                    continue
                found = self._load(place.resolve())
                if found is not None:
                    return found
        return None

    def _load(self, place: Path) -> Script | None:
        if place not in self._modules:
            self._modules[place] = None
            if place.is_file():
                # Whoever runs it will hear of what is wrong with it.
                with suppress(SourceError):
                    self._modules[place] = read_script(place)
        return self._modules[place]

    def _definition(self, script: Script, path: str) -> tuple[Script, str | None] | None:
        """The script that an imported path leads to, and the name in it."""
        module = self.module(script, path)
        if module is not None:
            return module, None
        if "." not in path.lstrip("."):
            head = path[: len(path) - len(path.lstrip("."))]
            module = self.module(script, head) if head else None
            return None if module is None else (module, path.lstrip("."))
        head, _, name = path.rpartition(".")
        module = self.module(script, head or ".")
        return None if module is None else (module, name)

    # --- definitions ---

    def definition(
        self, script: Script, node: cst.CSTNode, depth: int = 0
    ) -> tuple[Script, cst.FunctionDef | cst.ClassDef] | None:
        """The function or class of the project that an expression names."""
        if node not in script.order:
            # Modules may import a name from each other, in a circle.
            return self._defined(script, node, depth) if depth <= DEEPEST else None
        if node not in self._definitions:
            # Whoever asks again on the way, as in `x = x.to(device)`, learns nothing from it.
            self._definitions[node] = None
            self._definitions[node] = self._defined(script, node, depth)
        return self._definitions[node]

    def _defined(
        self, script: Script, node: cst.CSTNode, depth: int
    ) -> tuple[Script, cst.FunctionDef | cst.ClassDef] | None:
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
            if node.value.value in ("self", "cls"):
                owner = script.class_of(node)
                return self._method(script, owner, node.attr.value, 0) if owner else None
            # An object of a class of the project.
            for origin in self.origins(script, node.value):
                if origin.call is None:
                    continue
                made = self.definition(origin.script, origin.call.func)
                if made is not None and isinstance(made[1], cst.ClassDef):
                    return self._method(made[0], made[1], node.attr.value, 0)
        name = dotted(node)
        if name is None:
            return None
        scope = script.scope_of(node) if node in script.order else script.top
        found = scope.find(name.split(".")[0])
        if found is None:
            return None
        for binding in found[1]:
            if binding.kind in ("function", "class") and "." not in name:
                assert isinstance(binding.node, cst.FunctionDef | cst.ClassDef)
                return script, binding.node
            if binding.kind == "import":
                path = ".".join([binding.path, *name.split(".")[1:]])
                place = self._definition(script, path)
                if place is not None and place[1] is not None:
                    return self.definition(place[0], cst.Name(place[1]), depth + 1)
        return None

    def _method(
        self, script: Script, owner: cst.ClassDef, name: str, depth: int
    ) -> tuple[Script, cst.FunctionDef] | None:
        for binding in script.scopes[owner].bindings.get(name, []):
            if isinstance(binding.node, cst.FunctionDef):
                return script, binding.node
        if depth < 5:
            for base in owner.bases:
                made = self.definition(script, base.value)
                if made is not None and isinstance(made[1], cst.ClassDef):
                    found = self._method(made[0], made[1], name, depth + 1)
                    if found is not None:
                        return found
        return None

    @property
    def uses(self) -> dict[cst.CSTNode, list[tuple[Script, cst.Call]]]:
        """The calls of each function and class of the project."""
        if self._uses is None:
            self._uses = {}
            for script in self.scripts:
                for call in script.calls:
                    found = self.definition(script, call.func)
                    if found is not None:
                        self._uses.setdefault(found[1], []).append((script, call))
        return self._uses

    # --- values ---

    def origins(self, script: Script, node: cst.CSTNode) -> list[Origin]:
        """The expressions that a value may come from, through names, functions and attributes."""
        found: list[Origin] = []
        self._follow(script, node, (), found, set(), 0)
        return found

    def _follow(
        self,
        script: Script,
        node: cst.CSTNode,
        index: tuple[int, ...],
        found: list[Origin],
        seen: set[tuple[cst.CSTNode, tuple[int, ...]]],
        depth: int,
    ) -> None:
        if (node, index) in seen or depth > DEEPEST:
            return
        seen.add((node, index))

        def go(node: cst.CSTNode | None, index: tuple[int, ...], where: Script = script) -> None:
            if node is not None:
                self._follow(where, node, index, found, seen, depth + 1)

        if isinstance(node, cst.Name) or (isinstance(node, cst.Attribute) and dotted(node)):
            before = len(found)
            if self._follow_name(script, node, index, go):
                return
            del found[before:]
        elif isinstance(node, cst.IfExp):
            go(node.body, index)
            go(node.orelse, index)
            return
        elif isinstance(node, cst.BooleanOperation):
            go(node.left, index)
            go(node.right, index)
            return
        elif isinstance(node, cst.NamedExpr):
            go(node.value, index)
            return
        elif isinstance(node, cst.Tuple | cst.List) and index and index[0] < len(node.elements):
            go(node.elements[index[0]].value, index[1:])
            return
        elif isinstance(node, cst.Subscript) and len(node.slice) == 1:
            place = node.slice[0].slice
            value = constant(place.value) if isinstance(place, cst.Index) else ...
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                go(node.value, (value, *index))
                return
        elif isinstance(node, cst.Call):
            made = self.definition(script, node.func)
            if made is not None and isinstance(made[1], cst.FunctionDef):
                results = [n for n in returned(made[1]) if n is not None]
                for result in results:
                    go(result, index, made[0])
                if results:
                    return
        found.append(Origin(script, node, index))

    def _follow_name(
        self,
        script: Script,
        node: cst.CSTNode,
        index: tuple[int, ...],
        go: Callable[..., None],
    ) -> bool:
        """Go on to all that a name may hold; False if it holds nothing that is known."""
        name = dotted(node)
        assert name is not None
        scope = script.scope_of(node) if node in script.order else script.top
        found = scope.find(name)
        if found is None and name.startswith("self."):
            owner = script.class_of(node) if node in script.order else None
            bindings = script.scopes[owner].bindings.get(name, []) if owner else []
            found = (script.scopes[owner], bindings) if owner and bindings else None
        if found is None:
            head, _, rest = name.partition(".")
            outer = scope.find(head) if rest else None
            for binding in outer[1] if outer else ():
                if binding.kind == "import":
                    place = self._definition(script, f"{binding.path}.{rest}")
                    if place is not None and place[1] is not None:
                        go(cst.Name(place[1]), index, place[0])
                        return True
            return self._follow_argument(script, node, go)
        bindings = found[1]
        if found[0] is scope and node in script.order:
            # What is assigned further down does not count yet.
            now = [b for b in bindings if b.kind != "assign" or not script.later(b.node, node)]
            bindings = now or bindings
        known = False
        for binding in bindings:
            if binding.kind in ("assign", "with") and binding.value is not None:
                go(binding.value, (*binding.index, *index))
                known = True
            elif binding.kind == "parameter":
                known |= self._follow_parameter(script, binding, index, go)
            elif binding.kind == "import":
                place = self._definition(script, binding.path)
                if place is not None and place[1] is not None:
                    go(cst.Name(place[1]), index, place[0])
                    known = True
        return known

    def _follow_parameter(
        self,
        script: Script,
        binding: Binding,
        index: tuple[int, ...],
        go: Callable[..., None],
    ) -> bool:
        """What the calls of a function hand over for one of its parameters."""
        assert isinstance(binding.node, cst.Param)
        function = next(
            (n for n in script.above(binding.node) if isinstance(n, cst.FunctionDef)), None
        )
        if function is None:
            return False
        names = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
        wanted = binding.node.name.value
        owner: cst.CSTNode = function
        method = script.class_of(function) is not None and names[:1] == ["self"]
        if method and function.name.value == "__init__":
            owner = script.class_of(function) or function
        place = names.index(wanted) - int(method) if wanted in names else None
        known = False
        for where, call in self.uses.get(owner, []):
            value = argument(call, wanted, place)
            if value is not None:
                go(value, index, where)
                known = True
        if not known and binding.value is not None:
            go(binding.value, index)
            known = True
        return known

    def _follow_argument(self, script: Script, node: cst.CSTNode, go: Callable[..., None]) -> bool:
        """`args.batch_size`: the default of its add_argument."""
        if not isinstance(node, cst.Attribute):
            return False
        flag = node.attr.value
        for other in dict.fromkeys([script, *self.scripts]):
            for call in other.calls:
                if not (
                    isinstance(call.func, cst.Attribute) and call.func.attr.value == "add_argument"
                ):
                    continue
                names = [constant(arg.value) for arg in call.args if arg.keyword is None]
                spelled = [n.lstrip("-").replace("-", "_") for n in names if isinstance(n, str)]
                target = constant(argument(call, "dest"))
                if flag in ([target] if isinstance(target, str) else spelled):
                    default = argument(call, "default")
                    if default is not None:
                        go(default, (), other)
                        return True
        return False

    # --- what rules ask ---

    def calls(self, *names: str) -> Iterator[tuple[Script, cst.Call]]:
        """All calls, in the scripts that were given, of functions and classes by these names.

        A name that ends in `.` and a part of it matches whatever comes before.
        """
        for script in self.scripts:
            for call in script.calls:
                name = self.name(script, call.func)
                if name is not None and matches(name, names):
                    yield script, call

    def made_by(self, script: Script, node: cst.CSTNode, *names: str) -> bool | None:
        """Whether a value comes from a call of one of these; None if nobody can tell."""
        origins = self.origins(script, node)
        told = [self._made(origin, names) for origin in origins]
        if any(told):
            return True
        return None if not told or None in told else False

    def _made(self, origin: Origin, names: Sequence[str]) -> bool | None:
        if origin.call is not None:
            name = self.name(origin.script, origin.call.func)
            return None if name is None else matches(name, names)
        return False if constant(origin.node) is not ... else None


def matches(name: str, names: Sequence[str]) -> bool:
    """Whether a full name is one of these; `*.DataLoader` stands for any module's."""
    return any(name == n or (n.startswith("*.") and name.endswith(n[1:])) for n in names)


def returned(function: cst.FunctionDef) -> list[cst.BaseExpression | None]:
    """What a function returns, here and there, not counting functions inside it."""
    return [node.value for node in walk_shallow(function.body) if isinstance(node, cst.Return)]


def walk_shallow(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Everything below a node, without what functions and classes inside it hold."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        below = [n for n in children(node) if not isinstance(n, _INNER)]
        waiting.extend(reversed(below))


_INNER = (cst.FunctionDef, cst.ClassDef, cst.Lambda)
