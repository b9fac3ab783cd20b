"""Find the functions and classes that scripts define, and their calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from lockstep.source.names import DEEPEST, Names
from lockstep.source.script import Class, Function, Origin, Script, Use
from lockstep.source.tree import argument, dotted, spreads

Definition = tuple[Script, cst.FunctionDef | cst.ClassDef]
"""A function or class, and the script that defines it."""
SPAWN = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.start_processes",
    "torch.multiprocessing.spawn.spawn",
    "torch_xla.distributed.xla_multiprocessing.spawn",
)
PROCESS = ("torch.multiprocessing.Process", "multiprocessing.Process", "threading.Thread")
LAUNCHERS = ("accelerate.notebook_launcher", "accelerate.launchers.notebook_launcher")


@dataclass(frozen=True, eq=False)
class Handed:
    """A function that another one calls: mp.spawn, partial, Process."""

    script: Script
    call: cst.Call
    places: tuple[cst.BaseExpression, ...]
    """The positional arguments of the call."""
    skipped: int = 0
    """Number of arguments that the caller puts before them: mp.spawn's rank."""
    keywords: bool = False
    """Whether the keywords of the call are passed on too."""

    def argument(self, name: str, place: int | None) -> cst.BaseExpression | None:
        """Return the value that the call gives to a parameter of the function."""
        if place is not None and 0 <= place - self.skipped < len(self.places):
            return self.places[place - self.skipped]
        return argument(self.call, name) if self.keywords else None


class Definitions(Names):
    """The functions and classes of some scripts, and their calls."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        super().__init__(scripts)
        self._definitions: dict[cst.CSTNode, Definition | None] = {}
        self._uses: dict[cst.CSTNode, list[Use]] | None = None
        self._handed: dict[cst.CSTNode, list[Handed]] | None = None
        self._busy = 0
        """Number of searches under way; results found meanwhile may be incomplete."""

    def origins(self, script: Script, node: cst.CSTNode) -> list[Origin]:
        """Return where a value comes from; `Values` implements it."""
        raise NotImplementedError

    def definition(self, script: Script, node: cst.CSTNode) -> Definition | None:
        """Return the function or class of the project that an expression names."""
        return self._define(script, node, 0)

    def function(self, script: Script, node: cst.CSTNode) -> Function | None:
        """Return the function of the project that an expression names."""
        made = self.definition(script, node)
        return (made[0], made[1]) if made and isinstance(made[1], cst.FunctionDef) else None

    def class_named(self, script: Script, node: cst.CSTNode) -> Class | None:
        """Return the class of the project that an expression names."""
        made = self.definition(script, node)
        return (made[0], made[1]) if made and isinstance(made[1], cst.ClassDef) else None

    def callers(self, script: Script, function: cst.FunctionDef) -> list[Use]:
        """Return the calls of a function; of `__init__`, those of its class."""
        owner = script.class_of(function) if function.name.value == "__init__" else None
        return self.uses.get(owner or function, [])

    def _define(self, script: Script, node: cst.CSTNode, depth: int) -> Definition | None:
        if depth > DEEPEST:
            return None
        if node not in script.order:
            return self._defined(script, node, depth)
        if node not in self._definitions:
            # A search that returns to this node, as in `x = x.to(device)`, finds nothing.
            self._definitions[node] = None
            self._busy += 1
            self._definitions[node] = self._defined(script, node, depth)
            self._busy -= 1
        return self._definitions[node]

    def _defined(self, script: Script, node: cst.CSTNode, depth: int) -> Definition | None:
        if isinstance(node, cst.Call):
            # `partial(worker, config)`
            if self.name(script, node.func) == "functools.partial" and node.args:
                return self._define(script, node.args[0].value, depth + 1)
            return None
        scope = script.scope_of(node)
        name = dotted(node)
        head = name.split(".")[0] if name is not None else ""
        if isinstance(node, cst.Attribute) and head in ("self", "cls") and name:
            owner = script.class_of(node)
            if name.count(".") == 1:
                method = self.method_of(script, owner, node.attr.value) if owner else None
                if method is not None or owner is None:
                    return method
        found = scope.find(head) if name is not None else None
        imported = found is not None and any(b.kind == "import" for b in found[1])
        if isinstance(node, cst.Attribute) and not imported:
            made = self._class_of_value(script, node.value)
            return self.method_of(*made, node.attr.value) if made is not None else None
        if name is None:
            return None
        if found is None:
            other = self._star_place(script, head) if "." not in name else None
            return self._define(other, cst.Name(head), depth + 1) if other else None
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
                        return self.method_of(made_at[0], made_at[1], name.split(".")[1])
        assigned = [b for b in found[1] if b.kind == "assign" and not b.index]
        if len(found[1]) == len(assigned) == 1 and "." not in name:
            # `run = worker`, `run = partial(worker, config)`
            value = assigned[0].value
            if isinstance(value, cst.Name | cst.Attribute | cst.Call):
                return self._define(script, value, depth + 1)
        return None

    def _class_of_value(self, script: Script, node: cst.CSTNode) -> Class | None:
        """Return the class of the project that a value is an instance of, or the class itself."""
        if isinstance(node, cst.Name) and (itself := self.class_named(script, node)):
            return itself
        calls = ((o.script, o.call.func) for o in self.origins(script, node) if o.call is not None)
        return next((made for call in calls if (made := self.class_named(*call))), None)

    def method_of(
        self, script: Script, owner: cst.ClassDef, name: str, depth: int = 0
    ) -> Function | None:
        """Return a method of a class, or of one that it is built on."""
        for method in script.methods(owner, name):
            return script, method
        for base in owner.bases if depth < 5 else ():
            made = self.class_named(script, base.value)
            found = self.method_of(*made, name, depth + 1) if made is not None else None
            if found is not None:
                return found
        return None

    def kept(
        self, script: Script, owner: cst.ClassDef, name: str
    ) -> list[tuple[Script, cst.CSTNode]]:
        """Return the values that a class, or else its base, keeps in an attribute."""
        for _ in range(5):
            bindings = script.scopes[owner].bindings
            values = [
                (script, b.value)
                for b in (*bindings.get(f"self.{name}", ()), *bindings.get(name, ()))
                if b.kind == "assign" and b.value is not None and not b.index
            ]
            if values:
                return values
            above = [self.class_named(script, base.value) for base in owner.bases]
            first = next((made for made in above if made is not None), None)
            if first is None:
                break
            script, owner = first
        return []

    @property
    def uses(self) -> dict[cst.CSTNode, list[Use]]:
        """Return the calls of each function and class of the project."""
        if self._uses is None:
            self._uses = {}
            self._busy += 1
            every = [(script, call) for script in self.scripts for call in script.calls]
            # Methods last, since finding their object needs the calls of plain functions.
            every.sort(key=lambda use: isinstance(use[1].func, cst.Attribute))
            for of in (self.definition, self._callable):
                rest = []
                for script, call in every:
                    found = of(script, call.func)
                    if found is not None:
                        self._uses.setdefault(found[1], []).append((script, call))
                    else:
                        rest.append((script, call))
                every = rest
            self._busy -= 1
        return self._uses

    def _callable(self, script: Script, node: cst.CSTNode) -> Definition | None:
        """Return the `__call__` of the object that an expression stands for."""
        if dotted(node) is None:
            return None
        made = self._class_of_value(script, node)
        return self.method_of(*made, "__call__") if made is not None else None

    @property
    def handed(self) -> dict[cst.CSTNode, list[Handed]]:
        """Return the functions of the project that others call, with the arguments they pass."""
        if self._handed is None:
            self._handed = {}
            self._busy += 1
            for script in self.scripts:
                for call in script.calls:
                    given = self._handed_by(script, call)
                    made = self.definition(script, given[0]) if given is not None else None
                    if given is not None and made is not None:
                        self._handed.setdefault(made[1], []).append(given[1])
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

    def arguments(
        self, script: Script, function: cst.FunctionDef, wanted: str
    ) -> list[tuple[Script, cst.BaseExpression]]:
        """Return what the calls of a function pass for one of its parameters."""
        owner: cst.CSTNode = function
        if function.name.value == "__init__":
            owner = script.class_of(function) or function
        place = place_of(script, function, wanted)
        uses = self.uses.get(owner, [])
        given = [(where, argument(call, wanted, place)) for where, call in uses]
        given += [(h.script, h.argument(wanted, place)) for h in self.handed.get(owner, [])]
        return [(where, value) for where, value in given if value is not None]


def place_of(script: Script, function: cst.FunctionDef, parameter: str) -> int | None:
    """Return the position at which a call gives a parameter; None if only its name can."""
    names = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
    method = script.class_of(function) is not None and names[:1] in (["self"], ["cls"])
    return names.index(parameter) - int(method) if parameter in names else None


def given_to(
    call: cst.Call, name: str, place: int | None, default: cst.CSTNode | None
) -> cst.BaseExpression | None:
    """Return what a call gives for a parameter: an argument, the default, or nothing known."""
    value = argument(call, name, place)
    if value is not None or spreads(call):
        return value
    return default if isinstance(default, cst.BaseExpression) else None
