"""Find where values come from: through names, functions, containers, attributes and flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from lockstep.source.definitions import Definitions, place_of
from lockstep.source.flags import default_of
from lockstep.source.names import DEEPEST
from lockstep.source.scopes import Binding
from lockstep.source.script import Function, Origin, Passage, Script, Via
from lockstep.source.tree import EACH, argument, constant, dotted, parts, returned, spreads

Index = tuple[int | str, ...]
"""The part of a value that is meant: `(1, "x")` for `value[1]["x"]`."""
Go = Callable[..., None]
"""Called with an expression that the value also comes from, the part of it, and its script."""
_CHOICES: dict[type[cst.CSTNode], tuple[str, ...]] = {
    cst.IfExp: ("body", "orelse"),
    cst.BooleanOperation: ("left", "right"),
    cst.NamedExpr: ("value",),
    cst.Await: ("expression",),
}
"""Expressions whose value is that of one of their parts, and the names of these parts."""
MOST_NESTED = 4
"""The most values that are followed in order to follow another one."""
MOST_STEPS = 300
"""The most expressions that are examined to follow one value."""
MOST_IN_ALL = 3_000
"""The most expressions that are examined to follow one value and all that this needs."""
MOST_PASSED = 6
"""The most calls that a value is followed through, each with the arguments of that call."""


class Values(Definitions):
    """The values in some scripts, followed to the expressions that make them."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        super().__init__(scripts)
        self._origins: dict[tuple[cst.CSTNode, Via], list[Origin]] = {}
        self._followed: set[cst.CSTNode] = set()
        self._spent = 0
        """Expressions that were examined for the value that is followed now."""
        self._cut = 0
        """How often a value was not followed to its end."""

    def origins(self, script: Script, node: cst.CSTNode, via: Via = ()) -> list[Origin]:
        """Return the expressions that a value may come from, through names and functions.

        `via` are the calls of functions around the node whose arguments are meant; without it, the
        arguments of all calls are.
        """
        if (node, via) in self._origins:
            return list(self._origins[node, via])
        if node in self._followed or len(self._followed) > MOST_NESTED:
            # The value depends on itself, or comes from too far away.
            self._cut += 1
            return [Origin(script, node)]
        if not self._followed:
            self._spent = 0
        found: list[Origin] = []
        cut = self._cut
        self._followed.add(node)
        try:
            self._follow(script, node, (), found, set(), 0, via)
        finally:
            self._followed.discard(node)
        if not found:
            # The value depends only on itself.
            found.append(Origin(script, node))
        if node in script.order and not self._busy and cut == self._cut:
            self._origins[node, via] = found
        return list(found)

    def _may_bind(self, script: Script, binding: Binding, node: cst.CSTNode, via: Via) -> bool:
        """Return whether a binding may give a name its value; `Live` knows some that do not."""
        return True

    def _follow(
        self,
        script: Script,
        node: cst.CSTNode,
        index: Index,
        found: list[Origin],
        seen: set[tuple[cst.CSTNode, Index, Via]],
        depth: int,
        via: Via,
    ) -> None:
        if (node, index, via) in seen or depth > DEEPEST or len(seen) > MOST_STEPS:
            return
        self._spent += 1
        if self._spent > MOST_IN_ALL:
            self._cut += 1
            return
        seen.add((node, index, via))

        def go(
            node: cst.CSTNode | None, index: Index, where: Script = script, through: Via = via
        ) -> None:
            if node is not None:
                self._follow(where, node, index, found, seen, depth + 1, through)

        if isinstance(node, cst.Name) or (isinstance(node, cst.Attribute) and dotted(node)):
            before = len(found)
            if self._follow_name(script, node, index, go, via):
                return
            del found[before:]
        elif isinstance(node, cst.Attribute):
            if self._follow_attribute(script, node, index, go):
                return
        elif type(node) in _CHOICES:
            for field in _CHOICES[type(node)]:
                if self._may_take(script, node, field, via):
                    go(getattr(node, field), index)
            return
        elif index and (taken := self._parts(script, node, index[0])):
            for part in taken:
                go(part, index[1:])
            return
        elif isinstance(node, cst.Subscript) and len(node.slice) == 1:
            place = node.slice[0].slice
            value = constant(place.value) if isinstance(place, cst.Index) else ...
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                go(node.value, (value, *index))
                return
            if isinstance(place, cst.Index) and isinstance(value, str | type(...)):
                # `loaders["train"]` or `loaders[phase]`, if the dictionary is known.
                before = len(found)
                inner = (value if isinstance(value, str) else EACH, *index)
                go(node.value, inner)
                known = [origin for origin in found[before:] if not origin.index]
                unknown = [origin for origin in found[before:] if origin.index]
                if known and all(isinstance(o.node, cst.Dict) for o in unknown):
                    # `loaders = {}` is filled later.
                    found[before:] = known
                    return
                del found[before:]
        elif isinstance(node, cst.Call):
            results = [
                (where, result, function)
                for where, function in self._called(script, node.func)
                for result in returned(function)
                if result is not None
            ]
            for where, result, function in results:
                passage = Passage(function, script, node)
                passed = (*via, passage) if len(via) < MOST_PASSED else via
                if self._may_return(where, result, passed):
                    go(result, index, where, passed)
            if results:
                return
            if isinstance(node.func, cst.Name) and not index:
                # `make = lambda data: DataLoader(data)`
                bound = script.scope_of(node).find(node.func.value)
                maker = bound[1][0] if bound is not None and len(bound[1]) == 1 else None
                if maker and maker.kind == "assign" and isinstance(maker.value, cst.Lambda):
                    go(maker.value.body, index)
                    return
        found.append(Origin(script, node, index, via))

    def _called(self, script: Script, node: cst.CSTNode) -> list[Function]:
        """Return the functions that a call may run: several, if they are defined under an `if`."""
        made = self.function(script, node)
        if made is None:
            return []
        bound = made[0].scope_of(made[1]).bindings.get(made[1].name.value, [])
        others = [b.node for b in bound if isinstance(b.node, cst.FunctionDef)]
        return [(made[0], function) for function in dict.fromkeys([made[1], *others])]

    def _parts(self, script: Script, node: cst.CSTNode, key: int | str) -> list[cst.BaseExpression]:
        """Return the parts of a literal that an index or a key takes; of calls, only of dict."""
        if isinstance(node, cst.Call) and self.name(script, node.func) is not None:
            return []
        return parts(node, key)

    def _may_take(self, script: Script, node: cst.CSTNode, side: str, via: Via) -> bool:
        """Return whether an expression may have the value of one of its sides."""
        return True

    def _may_return(self, script: Script, value: cst.CSTNode, via: Via) -> bool:
        """Return whether a function called in this way may return a value; `Live` knows more."""
        return True

    def _follow_name(
        self, script: Script, node: cst.CSTNode, index: Index, go: Go, via: Via
    ) -> bool:
        """Follow everything that a name may hold; return False if nothing is known."""
        name = dotted(node)
        assert name is not None
        scope = script.scope_of(node)
        found = scope.find(name)
        if found is None and name.startswith("self."):
            owner = script.class_of(node)
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
            return known or self._follow_flag(script, node, go)
        bindings = found[1]
        if found[0] is scope and node in script.order:
            # Assignments further down have not run yet.
            now = [b for b in bindings if b.kind != "assign" or not script.later(b.node, node)]
            bindings = now or bindings
        bindings = [b for b in bindings if self._may_bind(script, b, node, via)] or bindings
        for binding in bindings:
            if binding.kind in ("assign", "with") and binding.value is not None:
                go(binding.value, (*binding.index, *index))
                known = True
            elif binding.kind == "parameter":
                known |= self._follow_parameter(script, binding, index, go, via)
            elif binding.kind == "loop" and binding.value is not None:
                known |= self._follow_loop(script, binding, index, go)
            elif binding.kind == "import":
                place = self._definition(script, binding.path)
                if place is not None and place[1] is not None:
                    go(cst.Name(place[1]), index, place[0])
                    known = True
        return known

    def _follow_items(
        self, script: Script, node: cst.CSTNode, name: str, index: Index, go: Go
    ) -> bool:
        """Follow `loaders["train"] = ...`, where `loaders["train"]` is asked for."""
        if not index:
            return False
        scope = script.scope_of(node)
        owner = script.class_of(node) if name.startswith("self.") else None
        known = False
        for binding in (script.scopes[owner] if owner else scope).put(name):
            if binding.value is not None and (
                EACH in (index[0], *binding.index[:1]) or binding.index[:1] == index[:1]
            ):
                go(binding.value, index[1:])
                known = True
        return known

    def _follow_loop(self, script: Script, binding: Binding, index: Index, go: Go) -> bool:
        """Follow `for loader in (train, test)` and `for phase, loader in loaders.items()`."""
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
            if origin.index or isinstance(origin.node, cst.ListComp):
                continue
            for part in self._parts(origin.script, origin.node, EACH):
                go(part, (*which, *index), origin.script)
                known = True
        return known

    def _follow_attribute(self, script: Script, node: cst.Attribute, index: Index, go: Go) -> bool:
        """Follow `config.lr` and `trainer.loader`: attributes of a class of the project."""
        name = node.attr.value
        head = node.value
        if isinstance(head, cst.Name) and head.value in ("self", "cls"):
            owner = script.class_of(node)
            made = (script, owner) if owner is not None else None
        else:
            for origin in self.origins(script, head):
                given = argument(origin.call, name) if origin.call is not None else None
                made = (
                    self._class_of_value(origin.script, origin.node) if given is not None else None
                )
                if made is not None and "__init__" not in made[0].scopes[made[1]].bindings:
                    # A data class keeps its arguments.
                    go(given, index, origin.script)
                    return True
            made = self._class_of_value(script, head)
        kept = self.kept(*made, name) if made is not None else []
        for where, value in kept:
            go(value, index, where)
        return bool(kept)

    def _follow_parameter(
        self, script: Script, binding: Binding, index: Index, go: Go, via: Via
    ) -> bool:
        """Follow what the calls of a function pass for one of its parameters, or its default."""
        assert isinstance(binding.node, cst.Param)
        function = next(
            (n for n in script.above(binding.node) if isinstance(n, cst.FunctionDef | cst.Lambda)),
            None,
        )
        if not isinstance(function, cst.FunctionDef):
            return False
        name = binding.node.name.value
        for number, passage in reversed(list(enumerate(via))):
            if passage.function is function:
                # The value came out of this call: only its arguments count.
                place = place_of(script, function, name)
                value = argument(passage.call, name, place)
                if value is not None:
                    go(value, index, passage.script, via[:number])
                    return True
                if not spreads(passage.call) and binding.value is not None:
                    go(binding.value, index)
                    return True
                break
        given = self.arguments(script, function, name)
        for where, value in given:
            go(value, index, where)
        if not given and binding.value is not None:
            go(binding.value, index)
        return bool(given) or binding.value is not None

    def _follow_flag(self, script: Script, node: cst.CSTNode, go: Go) -> bool:
        """Follow `args.batch_size` to the default of its add_argument."""
        if not isinstance(node, cst.Attribute):
            return False
        found = default_of(node.attr.value, dict.fromkeys([script, *self.scripts]))
        if found is not None:
            go(found[1], (), found[0])
        return found is not None
