"""Several scripts that import each other: what they define, and where their values come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import libcst as cst

from lockstep.source.names import DEEPEST, Names
from lockstep.source.scopes import EACH, Binding
from lockstep.source.script import Script
from lockstep.source.tree import argument, children, constant, dotted

MOST_NESTED = 4
"""Values that are followed in order to follow another one."""
MOST_STEPS = 300
"""Expressions that are looked at to follow one value."""


@dataclass(frozen=True, eq=False)
class Origin:
    """An expression that a value may come from, and the script that it stands in."""

    script: Script
    node: cst.CSTNode
    index: tuple[int | str, ...] = ()
    """Which part of it, if it gives several."""

    @property
    def call(self) -> cst.Call | None:
        """The expression, if it is a call whose result is meant as a whole."""
        return self.node if isinstance(self.node, cst.Call) and not self.index else None


@dataclass(frozen=True, eq=False)
class Handed:
    """A function that is given to another to be called: by mp.spawn, partial, Process."""

    script: Script
    call: cst.Call
    places: tuple[cst.BaseExpression, ...]
    """Arguments by place."""
    skipped: int = 0
    """Places before them that the caller fills: mp.spawn's rank."""
    keywords: bool = False
    """Whether the call's keywords are handed over too."""

    def argument(self, name: str, place: int | None) -> cst.BaseExpression | None:
        """The value of one of its parameters."""
        if place is not None and 0 <= place - self.skipped < len(self.places):
            return self.places[place - self.skipped]
        return argument(self.call, name) if self.keywords else None


SPAWN = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.start_processes",
    "torch.multiprocessing.spawn.spawn",
    "torch_xla.distributed.xla_multiprocessing.spawn",
)
PROCESS = ("torch.multiprocessing.Process", "multiprocessing.Process", "threading.Thread")
LAUNCHERS = ("accelerate.notebook_launcher", "accelerate.launchers.notebook_launcher")


class Project(Names):
    """Scripts that are looked at together; others are read when they are imported."""

    def __init__(self, scripts: Sequence[Script], roots: Sequence[Path] = ()) -> None:
        super().__init__(scripts, roots)
        self._uses: dict[cst.CSTNode, list[tuple[Script, cst.Call]]] | None = None
        self._followed: set[cst.CSTNode] = set()
        self._cut = 0
        """How often a value was not followed to its end."""
        self._definitions: dict[
            cst.CSTNode, tuple[Script, cst.FunctionDef | cst.ClassDef] | None
        ] = {}
        self._origins: dict[cst.CSTNode, list[Origin]] = {}
        self._by_name: dict[str, list[tuple[Script, cst.Call]]] | None = None
        self._handed: dict[cst.CSTNode, list[Handed]] | None = None
        self._busy = 0
        """Searches under way: what is found meanwhile may lack something."""

    # --- definitions ---

    def definition(
        self, script: Script, node: cst.CSTNode
    ) -> tuple[Script, cst.FunctionDef | cst.ClassDef] | None:
        """The function or class of the project that an expression names."""
        return self._define(script, node, 0)

    def _define(
        self, script: Script, node: cst.CSTNode, depth: int
    ) -> tuple[Script, cst.FunctionDef | cst.ClassDef] | None:
        if depth > DEEPEST:
            return None
        if node not in script.order:
            return self._defined(script, node, depth)
        if node not in self._definitions:
            # Whoever asks again on the way, as in `x = x.to(device)`, learns nothing from it.
            self._definitions[node] = None
            self._busy += 1
            self._definitions[node] = self._defined(script, node, depth)
            self._busy -= 1
        return self._definitions[node]

    def _defined(
        self, script: Script, node: cst.CSTNode, depth: int
    ) -> tuple[Script, cst.FunctionDef | cst.ClassDef] | None:
        if isinstance(node, cst.Call):
            # `partial(worker, config)`
            if self.name(script, node.func) == "functools.partial" and node.args:
                return self._define(script, node.args[0].value, depth + 1)
            return None
        scope = script.scope_of(node) if node in script.order else script.top
        name = dotted(node)
        head = name.split(".")[0] if name is not None else ""
        if isinstance(node, cst.Attribute) and head in ("self", "cls") and name:
            owner = script.class_of(node)
            if name.count(".") == 1:
                method = self._method(script, owner, node.attr.value, 0) if owner else None
                if method is not None or owner is None:
                    return method
        found = scope.find(head) if name is not None else None
        imported = found is not None and any(b.kind == "import" for b in found[1])
        if isinstance(node, cst.Attribute) and not imported:
            made = self._class_of_value(script, node.value)
            return self._method(*made, node.attr.value, 0) if made is not None else None
        if name is None:
            return None
        if found is None:
            other = self._star_place(script, head)
            return (
                self._define(other, cst.Name(head), depth + 1)
                if other and "." not in name
                else None
            )
        for binding in found[1]:
            if binding.kind in ("function", "class") and "." not in name:
                assert isinstance(binding.node, cst.FunctionDef | cst.ClassDef)
                return script, binding.node
            if binding.kind == "import":
                path = ".".join([binding.path, *name.split(".")[1:]])
                place = self._definition(script, path)
                if place is not None and place[1] is not None:
                    return self._define(place[0], cst.Name(place[1]), depth + 1)
                # `from package import Trainer`, then `Trainer.fit`
                owner_place = self._definition(script, binding.path)
                if name.count(".") == 1 and owner_place is not None and owner_place[1] is not None:
                    made_at = self._define(owner_place[0], cst.Name(owner_place[1]), depth + 1)
                    if made_at is not None and isinstance(made_at[1], cst.ClassDef):
                        return self._method(made_at[0], made_at[1], name.split(".")[1], 0)
        assigned = [b for b in found[1] if b.kind == "assign" and not b.index]
        if len(found[1]) == len(assigned) == 1 and "." not in name:
            # `run = worker`, `run = partial(worker, config)`
            value = assigned[0].value
            if isinstance(value, cst.Name | cst.Attribute | cst.Call):
                return self._define(script, value, depth + 1)
        return None

    def _class_of_value(
        self, script: Script, node: cst.CSTNode
    ) -> tuple[Script, cst.ClassDef] | None:
        """The class of the project that a value is an object of, or the class itself."""
        if isinstance(node, cst.Name):
            itself = self.definition(script, node)
            if itself is not None and isinstance(itself[1], cst.ClassDef):
                return itself[0], itself[1]
        for origin in self.origins(script, node):
            if origin.call is not None:
                made = self.definition(origin.script, origin.call.func)
                if made is not None and isinstance(made[1], cst.ClassDef):
                    return made[0], made[1]
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
            self._busy += 1
            every = [(script, call) for script in self.scripts for call in script.calls]
            # Methods of objects last: to know the object takes the calls of plain functions.
            every.sort(key=lambda use: isinstance(use[1].func, cst.Attribute))
            for script, call in every:
                found = self.definition(script, call.func)
                if found is not None:
                    self._uses.setdefault(found[1], []).append((script, call))
            self._busy -= 1
        return self._uses

    @property
    def handed(self) -> dict[cst.CSTNode, list[Handed]]:
        """Functions of the project that others call for it, with what they hand over."""
        if self._handed is None:
            self._handed = {}
            self._busy += 1
            for script in self.scripts:
                for call in script.calls:
                    given = self._handed_by(script, call)
                    if given is None:
                        continue
                    function, found = given
                    made = self.definition(script, function)
                    if made is not None:
                        self._handed.setdefault(made[1], []).append(found)
            self._busy -= 1
        return self._handed

    def _handed_by(
        self, script: Script, call: cst.Call
    ) -> tuple[cst.BaseExpression, Handed] | None:
        name = self.name(script, call.func)
        if name == "functools.partial" and call.args and not call.args[0].star:
            rest = tuple(a.value for a in call.args[1:] if a.keyword is None and not a.star)
            return call.args[0].value, Handed(script, call, rest, keywords=True)
        if name in SPAWN:
            function, skipped, place = argument(call, "fn", 0), 1, 1
        elif name in PROCESS or (name or "").endswith(".Process"):
            function, skipped, place = argument(call, "target", 1), 0, 3
        elif name in LAUNCHERS:
            function, skipped, place = argument(call, "function", 0), 0, 1
        else:
            return None
        if function is None:
            return None
        given = argument(call, "args", place)
        for origin in self.origins(script, given) if given is not None else ():
            if isinstance(origin.node, cst.Tuple | cst.List) and origin.script is script:
                elements = origin.node.elements
                if not any(isinstance(e, cst.StarredElement) for e in elements):
                    return function, Handed(script, call, tuple(e.value for e in elements), skipped)
        return function, Handed(script, call, (), skipped)

    # --- values ---

    def origins(self, script: Script, node: cst.CSTNode) -> list[Origin]:
        """The expressions that a value may come from, through names, functions and attributes."""
        if node in self._origins:
            return list(self._origins[node])
        if node in self._followed or len(self._followed) > MOST_NESTED:
            # It comes from itself, or from too far.
            self._cut += 1
            return [Origin(script, node)]
        found: list[Origin] = []
        cut = self._cut
        self._followed.add(node)
        try:
            self._follow(script, node, (), found, set(), 0)
        finally:
            self._followed.discard(node)
        if not found:
            # It comes from itself only.
            found.append(Origin(script, node))
        if node in script.order and not self._busy and cut == self._cut:
            self._origins[node] = found
        return list(found)

    def _follow(
        self,
        script: Script,
        node: cst.CSTNode,
        index: tuple[int | str, ...],
        found: list[Origin],
        seen: set[tuple[cst.CSTNode, tuple[int | str, ...]]],
        depth: int,
    ) -> None:
        if (node, index) in seen or depth > DEEPEST or len(seen) > MOST_STEPS:
            return
        seen.add((node, index))

        def go(
            node: cst.CSTNode | None, index: tuple[int | str, ...], where: Script = script
        ) -> None:
            if node is not None:
                self._follow(where, node, index, found, seen, depth + 1)

        if isinstance(node, cst.Name) or (isinstance(node, cst.Attribute) and dotted(node)):
            before = len(found)
            if self._follow_name(script, node, index, go):
                return
            del found[before:]
        elif isinstance(node, cst.Attribute):
            if self._follow_attribute(script, node, index, go):
                return
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
        elif isinstance(node, cst.Await):
            go(node.expression, index)
            return
        elif index and (parts := self._parts(script, node, index[0])):
            for part in parts:
                go(part, index[1:])
            return
        elif isinstance(node, cst.Subscript) and len(node.slice) == 1:
            place = node.slice[0].slice
            value = constant(place.value) if isinstance(place, cst.Index) else ...
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                go(node.value, (value, *index))
                return
            if isinstance(place, cst.Index) and isinstance(value, str | type(...)):
                # `loaders["train"]`, `loaders[phase]`: where the dictionary is in sight.
                before = len(found)
                inner = (value if isinstance(value, str) else EACH, *index)
                go(node.value, inner)
                known = [origin for origin in found[before:] if not origin.index]
                unknown = [origin for origin in found[before:] if origin.index]
                if known and all(isinstance(o.node, cst.Dict) for o in unknown):
                    # `loaders = {}` holds what is put into it later.
                    found[before:] = known
                    return
                del found[before:]
        elif isinstance(node, cst.Call):
            results = [
                (where, result)
                for where, function in self._called(script, node.func)
                for result in returned(function)
                if result is not None
            ]
            for where, result in results:
                go(result, index, where)
            if results:
                return
            if isinstance(node.func, cst.Name) and not index:
                # `make = lambda data: DataLoader(data)`
                bound = (
                    script.scope_of(node).find(node.func.value) if node in script.order else None
                )
                if bound is not None and len(bound[1]) == 1:
                    maker = bound[1][0].value
                    if bound[1][0].kind == "assign" and isinstance(maker, cst.Lambda):
                        go(maker.body, index)
                        return
        found.append(Origin(script, node, index))

    def _called(self, script: Script, node: cst.CSTNode) -> list[tuple[Script, cst.FunctionDef]]:
        """The functions that a call may run: several, if they are defined under an `if`."""
        made = self.definition(script, node)
        if made is None or not isinstance(made[1], cst.FunctionDef):
            return []
        bound = made[0].scope_of(made[1]).bindings.get(made[1].name.value, [])
        others = [b.node for b in bound if isinstance(b.node, cst.FunctionDef)]
        return [(made[0], function) for function in dict.fromkeys([made[1], *others])]

    def _parts(self, script: Script, node: cst.CSTNode, key: int | str) -> list[cst.BaseExpression]:
        """The parts of a literal that an index or a key takes."""
        if isinstance(node, cst.Tuple | cst.List) and isinstance(key, int):
            values = [e.value for e in node.elements if not isinstance(e, cst.StarredElement)]
            if key == EACH:
                return values
            before = node.elements[: key + 1]
            if any(isinstance(e, cst.StarredElement) for e in before):
                return []
            return [e.value for e in before[key:]]
        if isinstance(node, cst.Dict):
            pairs = [e for e in node.elements if isinstance(e, cst.DictElement)]
            return [e.value for e in pairs if key in (EACH, constant(e.key))]
        if isinstance(node, cst.DictComp):
            return [node.value]
        if isinstance(node, cst.ListComp | cst.GeneratorExp) and isinstance(key, int):
            return [node.elt]
        if isinstance(node, cst.Call) and self.name(script, node.func) is None:
            named = [a for a in node.args if a.keyword is not None]
            if isinstance(node.func, cst.Name) and node.func.value == "dict":
                return [a.value for a in named if a.keyword and key in (EACH, a.keyword.value)]
        return []

    def _follow_name(
        self,
        script: Script,
        node: cst.CSTNode,
        index: tuple[int | str, ...],
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
        known = self._follow_items(script, node, name, index, go)
        if found is None:
            head, _, rest = name.partition(".")
            outer = scope.find(head) if rest else None
            for binding in outer[1] if outer else ():
                if binding.kind == "import":
                    place = self._definition(script, f"{binding.path}.{rest}")
                    if place is not None and place[1] is not None:
                        go(cst.Name(place[1]), index, place[0])
                        return True
            other = self._star_place(script, name) if not rest else None
            if other is not None:
                go(cst.Name(name), index, other)
                return True
            if isinstance(node, cst.Attribute) and self._follow_attribute(script, node, index, go):
                return True
            return known or self._follow_argument(script, node, go)
        bindings = found[1]
        if found[0] is scope and node in script.order:
            # What is assigned further down does not count yet.
            now = [b for b in bindings if b.kind != "assign" or not script.later(b.node, node)]
            bindings = now or bindings
        for binding in bindings:
            if binding.kind in ("assign", "with") and binding.value is not None:
                go(binding.value, (*binding.index, *index))
                known = True
            elif binding.kind == "parameter":
                known |= self._follow_parameter(script, binding, index, go)
            elif binding.kind == "loop" and binding.value is not None:
                known |= self._follow_loop(script, binding, index, go)
            elif binding.kind == "import":
                place = self._definition(script, binding.path)
                if place is not None and place[1] is not None:
                    go(cst.Name(place[1]), index, place[0])
                    known = True
        return known

    def _follow_items(
        self,
        script: Script,
        node: cst.CSTNode,
        name: str,
        index: tuple[int | str, ...],
        go: Callable[..., None],
    ) -> bool:
        """`loaders["train"] = ...`, where `loaders["train"]` is asked for."""
        if not index:
            return False
        scope = script.scope_of(node) if node in script.order else script.top
        owner = script.class_of(node) if name.startswith("self.") and node in script.order else None
        known = False
        for binding in (script.scopes[owner] if owner else scope).put(name):
            if binding.value is not None and (
                EACH in (index[0], *binding.index[:1]) or binding.index[:1] == index[:1]
            ):
                go(binding.value, index[1:])
                known = True
        return known

    def _follow_loop(
        self,
        script: Script,
        binding: Binding,
        index: tuple[int | str, ...],
        go: Callable[..., None],
    ) -> bool:
        """`for loader in (train_loader, test_loader)`, `for phase, loader in loaders.items()`."""
        node, which = binding.value, binding.index
        if isinstance(node, cst.Call) and not node.args and isinstance(node.func, cst.Attribute):
            kind = node.func.attr.value
            if kind == "items" and which[:1] == (1,):
                which = which[1:]
            elif kind != "values":
                return False
            node = node.func.value
        if not isinstance(node, cst.Tuple | cst.List | cst.Dict | cst.Name | cst.Attribute):
            return False
        known = False
        for origin in self.origins(script, node):
            parts = () if origin.index else self._parts(origin.script, origin.node, EACH)
            for part in parts if not isinstance(origin.node, cst.ListComp) else ():
                go(part, (*which, *index), origin.script)
                known = True
        return known

    def _follow_attribute(
        self,
        script: Script,
        node: cst.Attribute,
        index: tuple[int | str, ...],
        go: Callable[..., None],
    ) -> bool:
        """`config.lr`, `trainer.loader`: of a class of the project, or of an object of it."""
        name = node.attr.value
        head = node.value
        if isinstance(head, cst.Name) and head.value in ("self", "cls"):
            owner = script.class_of(node) if node in script.order else None
            made = (script, owner) if owner is not None else None
        else:
            for origin in self.origins(script, head):
                value = None if origin.call is None else argument(origin.call, name)
                owner_found = self._class_of_value(origin.script, origin.node) if value else None
                if owner_found is not None and "__init__" not in (
                    owner_found[0].scopes[owner_found[1]].bindings
                ):
                    # A data class: what it was made with.
                    assert value is not None
                    go(value, index, origin.script)
                    return True
            made = self._class_of_value(script, head)
        for _ in range(5):
            if made is None or made[1] is None:
                return False
            bindings = made[0].scopes[made[1]].bindings
            values = [
                b.value
                for b in (*bindings.get(f"self.{name}", ()), *bindings.get(name, ()))
                if b.kind == "assign" and b.value is not None and not b.index
            ]
            for value in values:
                go(value, index, made[0])
            if values:
                return True
            above = [self.definition(made[0], base.value) for base in made[1].bases]
            classes = [(a[0], a[1]) for a in above if a and isinstance(a[1], cst.ClassDef)]
            made = classes[0] if classes else None
        return False

    def _follow_parameter(
        self,
        script: Script,
        binding: Binding,
        index: tuple[int | str, ...],
        go: Callable[..., None],
    ) -> bool:
        """What the calls of a function hand over for one of its parameters."""
        assert isinstance(binding.node, cst.Param)
        function = next(
            (n for n in script.above(binding.node) if isinstance(n, cst.FunctionDef | cst.Lambda)),
            None,
        )
        if not isinstance(function, cst.FunctionDef):
            return False
        names = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
        wanted = binding.node.name.value
        owner: cst.CSTNode = function
        method = script.class_of(function) is not None and names[:1] in (["self"], ["cls"])
        if method and function.name.value == "__init__":
            owner = script.class_of(function) or function
        place = names.index(wanted) - int(method) if wanted in names else None
        known = False
        for where, call in self.uses.get(owner, []):
            value = argument(call, wanted, place)
            if value is not None:
                go(value, index, where)
                known = True
        for handed in self.handed.get(owner, []):
            value = handed.argument(wanted, place)
            if value is not None:
                go(value, index, handed.script)
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
            for call in other.named_last("add_argument"):
                names = [constant(arg.value) for arg in call.args if arg.keyword is None]
                spelled = [n.lstrip("-").replace("-", "_") for n in names if isinstance(n, str)]
                target = constant(argument(call, "dest"))
                if flag in ([target] if isinstance(target, str) else spelled):
                    default = argument(call, "default")
                    if default is None:
                        action = constant(argument(call, "action"))
                        switch = {"store_true": "False", "store_false": "True"}.get(str(action))
                        default = cst.Name(switch) if switch else None
                    if default is not None:
                        go(default, (), other)
                        return True
        return False

    # --- what rules ask ---

    def calls(self, *names: str) -> Iterator[tuple[Script, cst.Call]]:
        """All calls, in the scripts that were given, of functions and classes by these names.

        A name that ends in `.` and a part of it matches whatever comes before.
        """
        if self._by_name is None:
            self._by_name = {}
            for script in self.scripts:
                for call in script.calls:
                    name = self.name(script, call.func)
                    if name is not None:
                        self._by_name.setdefault(name, []).append((script, call))
        wanted = [found for name, found in self._by_name.items() if matches(name, names)]
        if len(wanted) == 1:
            yield from wanted[0]
        elif wanted:
            places = {script: place for place, script in enumerate(self.scripts)}
            every = [found for group in wanted for found in group]
            yield from sorted(every, key=lambda f: (places[f[0]], f[0].order[f[1]]))

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


@lru_cache(maxsize=10_000)
def returned(function: cst.FunctionDef) -> list[cst.BaseExpression | None]:
    """What a function returns, here and there, not counting functions inside it."""
    return [node.value for node in walk_shallow(function.body) if isinstance(node, cst.Return)]


def walk_shallow(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Everything below a node, without what functions and classes inside it hold."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        below = [n for n in children(node) if type(n) not in _INNER]
        waiting.extend(reversed(below))


_INNER = {cst.FunctionDef, cst.ClassDef, cst.Lambda}
