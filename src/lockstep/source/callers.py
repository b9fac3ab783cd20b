"""Find all places that may call a function, also through objects of unknown classes."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

import libcst as cst

from lockstep.source.script import Script, Use
from lockstep.source.tree import code, constant, dotted
from lockstep.source.values import Values

_DEFINE = cst.FunctionDef | cst.ClassDef | cst.ImportAlias | cst.AsName | cst.Param
_BUILT_IN = {"append", "extend", "update", "get", "pop", "items", "keys", "values", "close", "join"}
"""Methods of Python's own types: a call of one says little about a class of the project."""


class Callers(Values):
    """The values in some scripts, and the calls of their functions."""

    def calls_of(self, script: Script, function: cst.FunctionDef) -> list[Use]:
        """Return the calls that may run a function; of `__init__`, those of its class."""
        owner: cst.CSTNode = function
        made = script.class_of(function)
        if function.name.value == "__init__" and made is not None:
            owner = made
        found = list(self.uses.get(owner, []))
        found += [(handed.script, handed.call) for handed in self.handed.get(owner, [])]
        if owner is function and made is not None:
            found += self._likely_calls(function)
            found = found or self._inherited_calls(script, made, function.name.value)
            hook = self._may_be_a_hook(script, made, function.name.value)
            if not found and hook and not function.name.value.startswith("__"):
                # A hook, which a class of another package calls.
                found = list(self.uses.get(made, []))
        return found

    def _inherited_calls(self, script: Script, owner: cst.ClassDef, name: str) -> list[Use]:
        """Return the calls of the methods that a method takes the place of."""
        found: list[Use] = []
        for base in owner.bases:
            above = self.class_named(script, base.value)
            method = self.method_of(*above, name) if above is not None else None
            if method is not None:
                found += self.uses.get(method[1], [])
        return found

    def every_call(self, script: Script, function: cst.FunctionDef) -> list[Use] | None:
        """Return all calls of a function; None if others may exist that nobody can see."""
        name, made = function.name.value, script.class_of(function)
        if name == "__init__" and made is not None:
            return (
                None if self._is_made_elsewhere(made) else self.calls_of(script, function) or None
            )
        unnamed = name == "forward" or (name.startswith("__") and name.endswith("__"))
        if unnamed or any(self._registers(script, d) for d in function.decorators):
            return None
        found = self.calls_of(script, function)
        if made is not None:
            hook = not found and self._may_be_a_hook(script, made, name)
            return None if self._uncalled[name] or hook else found
        if script.function_of(function) is not None:
            return found or None
        return found if self._references(script, function) <= len(found) else None

    def _is_made_elsewhere(self, owner: cst.ClassDef) -> bool:
        """Return whether a class has children, or is named where it is not called."""
        for where, node in self._named.get(owner.name.value, ()):
            parent = where.parents.get(node)
            called = isinstance(parent, cst.Call) and parent.func is node
            made = None if called else self.definition(where, node)
            if made is not None and made[1] is owner:
                return True
        return False

    def _registers(self, script: Script, decorator: cst.Decorator) -> bool:
        """Return whether a decorator may let somebody call the function by another way."""
        if _NOT_REGISTERING.search(code(decorator)):
            return False
        made = self.function(script, decorator.decorator)
        return made is None or _REGISTERING.search(made[0].code(made[1])) is not None

    def _may_be_a_hook(self, script: Script, owner: cst.ClassDef, name: str) -> bool:
        """Return whether a class of another package may call a method that nothing here calls."""
        if name in _HOOKS:
            return True
        for base in owner.bases:
            above = self.class_named(script, base.value)
            if above is not None:
                if self._may_be_a_hook(*above, name):
                    return True
            elif (self.name(script, base.value) or "") not in _PLAIN_BASES:
                return True
        return False

    def _references(self, script: Script, function: cst.FunctionDef) -> int:
        """Return how often a function of a module is named, besides where it is defined."""
        name = function.name.value
        if name in self._asked_by_text:
            return 1_000_000
        number = 0
        for where, node in self._named.get(name, ()):
            if self._under_another_key(where, node):
                continue
            made = self.definition(where, node)
            if made is None and isinstance(node, cst.Name):
                bound = where.scope_of(node).find(name)
                own = bound is not None and bound[0].kind != "module"
                # A local variable of the same name is something else.
                number += not own and (where is script or bound is None)
            elif made is not None:
                number += made[1] is function
        return number

    def _under_another_key(self, script: Script, node: cst.CSTNode) -> bool:
        """Match `{"a": build_a, "b": build_b}`, of which the program only takes other keys."""
        element = script.parents.get(node)
        target: cst.CSTNode | None = element
        while isinstance(target, cst.DictElement | cst.Dict):
            # Of nested tables, the outermost key counts.
            element = target if isinstance(target, cst.DictElement) else element
            target = script.parents.get(target)
        if not isinstance(element, cst.DictElement) or not isinstance(target, cst.Assign):
            return False
        name, key = dotted(target.targets[0].target), constant(element.key)
        taken = set()
        for where, use in self._named.get(name or "", ()):
            above = where.parents.get(use)
            if isinstance(above, cst.AssignTarget):
                continue
            if not isinstance(above, cst.Subscript) or above.value is not use:
                return False
            place = above.slice[0].slice
            taken.add(constant(place.value) if isinstance(place, cst.Index) else ...)
        return bool(taken) and ... not in taken and key not in taken

    def _likely_calls(self, function: cst.FunctionDef) -> list[Use]:
        """Return calls of methods with the name of this one, on objects of unknown classes."""
        name, parameters = function.name.value, function.params
        if name in _BUILT_IN:
            return []
        many = isinstance(parameters.star_arg, cst.Param) or parameters.star_kwarg is not None
        most = len(parameters.params) + len(parameters.kwonly_params)
        return [(s, c) for s, c in self._unknown.get(name, ()) if many or len(c.args) < most]

    @cached_property
    def _unknown(self) -> dict[str, list[Use]]:
        """The calls of methods whose object nobody knows, by the name of the method."""
        found: dict[str, list[Use]] = {}
        known = {id(call) for calls in self.uses.values() for _, call in calls}
        self._busy += 1
        for script in self.scripts:
            for call in script.calls:
                if type(call.func) is not cst.Attribute or id(call) in known:
                    continue
                if not self._is_foreign(script, call.func.value):
                    found.setdefault(call.func.attr.value, []).append((script, call))
        self._busy -= 1
        return found

    def _is_foreign(self, script: Script, node: cst.CSTNode) -> bool:
        """Return whether an object is a module, or made by a package that is not the project's."""
        if self.name(script, node) is not None:
            return True
        origins = self.origins(script, node)
        names = [self.name(o.script, o.call.func) if o.call is not None else None for o in origins]
        return bool(names) and all(n is not None and not n.startswith("./") for n in names)

    @cached_property
    def _named(self) -> dict[str, list[tuple[Script, cst.CSTNode]]]:
        """The places where names are used, besides where they are defined, by the last name."""
        found: dict[str, list[tuple[Script, cst.CSTNode]]] = {}
        for script in self.scripts:
            for node in script.order:
                if type(node) is cst.Name:
                    parent = script.parents.get(node)
                    if isinstance(parent, cst.Attribute) and node is parent.attr:
                        found.setdefault(node.value, []).append((script, parent))
                    elif not isinstance(parent, _DEFINE) and node is not getattr(
                        parent, "keyword", None
                    ):
                        found.setdefault(node.value, []).append((script, node))
        return found

    @cached_property
    def _uncalled(self) -> Counter[str]:
        """How often attributes are used without being called: `callback=self.save`."""
        found: Counter[str] = Counter(dict.fromkeys(self._asked_by_text, 1))
        for name, places in self._named.items():
            for script, node in places:
                if isinstance(node, cst.Attribute):
                    parent = script.parents.get(node)
                    called = isinstance(parent, cst.Call) and parent.func is node
                    found[name] += not called and not isinstance(parent, cst.AssignTarget)
        return found

    @cached_property
    def _asked_by_text(self) -> set[str]:
        """The names in `getattr(module, "name")` and the like."""
        found = set()
        for script in self.scripts:
            for call in script.calls:
                if dotted(call.func) in ("getattr", "eval") or "entry_point" in script.code(
                    call.func
                ):
                    texts = [a.value for a in call.args if isinstance(a.value, cst.SimpleString)]
                    found |= {text.value.strip("\"'") for text in texts}
        return found


_NOT_REGISTERING = re.compile(
    r"no_grad|inference_mode|enable_grad|lru_cache|contextmanager|wraps|record$|autocast|"
    r"(static|class)method"
)
"""Decorators that call nothing by themselves."""
_REGISTERING = re.compile(r"\.append\(|\.add\(|register|\]\s*=")
_HOOKS = {
    "state_dict",
    "load_state_dict",
    "train",
    "eval",
    "extra_repr",
    "reset_parameters",
    "step",
}
"""Methods that torch calls on modules and optimizers."""
_PLAIN_BASES = {
    "object", "torch.nn.Module", "torch.utils.data.Dataset", "torch.utils.data.dataset.Dataset",
    "abc.ABC", "torch.utils.data.Sampler", "torch.utils.data.IterableDataset",
}  # fmt: skip
