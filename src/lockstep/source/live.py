"""Decide what runs while several ranks train: conditions that hold, and code that is never reached.

Without `several_ranks`, nothing is decided: a program for one GPU takes other branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import libcst as cst

from lockstep.source.conditions import (
    asks_environment,
    ends,
    is_true,
    key_of,
    may_end,
    of_the_world,
    opposite_of,
    starts_something,
)
from lockstep.source.definitions import given_to, place_of
from lockstep.source.learned import Learned
from lockstep.source.scopes import Binding, Scope
from lockstep.source.script import Script, Via
from lockstep.source.tree import constant, dotted

_DEEP = 6
"""How many names, parameters and calls are followed to decide one condition."""


class Live(Learned):
    """The values in some scripts, without those of branches that several ranks never take."""

    def __init__(self, scripts: Sequence[Script], *, several_ranks: bool = False) -> None:
        super().__init__(scripts)
        self.several_ranks = several_ranks
        self._runs: dict[tuple[cst.CSTNode, Via], bool] = {}
        self._truths: dict[tuple[cst.CSTNode, Via], bool | None] = {}
        self._asked: set[tuple[cst.CSTNode, Via]] = set()
        self._doubtful: set[tuple[cst.CSTNode, Via]] = set()
        """Places that seem out of reach, by a question that led back to itself."""
        self._judged: set[tuple[cst.CSTNode, Via]] = set()
        self._circles = 0
        """How often a question led back to itself; answers found meanwhile may be too strict."""

    def runs(self, script: Script, node: cst.CSTNode, via: Via = ()) -> bool:
        """Return False if several ranks certainly never reach a place."""
        if not self.several_ranks or self._busy or node not in script.order:
            return True
        key = (node, via)
        if key in self._runs:
            return self._runs[key]
        if key in self._asked or key in self._doubtful:
            # A function that calls itself runs if anything else calls it.
            self._circles += 1
            return False
        circles = self._circles
        self._asked.add(key)
        found = self._is_reached(script, node, via)
        self._asked.discard(key)
        if found or circles == self._circles:
            self._runs[key] = found
        else:
            self._doubtful.add(key)
        if not self._asked:
            # Nothing is left to ask: what led only back to itself is out of reach.
            self._runs |= dict.fromkeys(() if found else self._doubtful, False)
            self._doubtful.clear()
        return found

    def _is_reached(self, script: Script, node: cst.CSTNode, via: Via) -> bool:
        below = node
        for parent in script.above(node):
            if isinstance(parent, cst.If | cst.IfExp):
                if below is not parent.test:
                    holds = self.truth(script, parent.test, via)
                    if holds is (below is not parent.body):
                        return False
            elif isinstance(parent, cst.BooleanOperation) and below is parent.right:
                if self.truth(script, parent.left, via) is isinstance(parent.operator, cst.Or):
                    return False
            elif isinstance(parent, cst.IndentedBlock | cst.Module):
                if self._was_left(script, parent, below, via):
                    return False
            elif isinstance(parent, cst.FunctionDef):
                if below is not parent.body:
                    return self.runs(script, parent)
                return self._is_called(script, parent, via)
            below = parent
        return True

    def _was_left(self, script: Script, block: cst.CSTNode, below: cst.CSTNode, via: Via) -> bool:
        """Return whether something before a statement always leaves its block."""
        assert isinstance(block, cst.IndentedBlock | cst.Module)
        for statement in block.body:
            if statement is below:
                return False
            if isinstance(statement, cst.If) and self._leaves(script, statement, via):
                return True
        return False

    def _leaves(self, script: Script, branch: cst.If, via: Via) -> bool:
        """Return whether the side of an `if` that runs ends in a return or the like."""
        if not (ends(branch.body) or (branch.orelse is not None and may_end(branch.orelse))):
            return False
        holds = self.truth(script, branch.test, via)
        if holds is None:
            return False
        if holds:
            # `if is_initialized(): return` comes before the ranks join.
            return ends(branch.body) and "initialized" not in script.code(branch.test)
        if isinstance(branch.orelse, cst.If):
            return self._leaves(script, branch.orelse, via)
        return branch.orelse is not None and ends(branch.orelse.body)

    def _is_called(self, script: Script, function: cst.FunctionDef, via: Via) -> bool:
        for number, passage in reversed(list(enumerate(via))):
            if passage.function is function:
                return self.runs(passage.script, passage.call, via[:number])
        uses = self.every_call(script, function)
        if not uses and script is self.scripts[0] and not starts_something(script):
            # A library, or a program that a command of its package starts.
            return True
        return uses is None or any(self.runs(where, call) for where, call in uses)

    def truth(self, script: Script, test: cst.CSTNode, via: Via = ()) -> bool | None:
        """Return whether a condition holds while several ranks train; None if it may or may not."""
        if not self.several_ranks or self._busy:
            return None
        key = (test, via)
        if key in self._judged:
            self._circles += 1
            return None
        if key not in self._truths:
            self.learned()
            circles = self._circles
            self._judged.add(key)
            found = self._holds(script, test, via, _DEEP)
            self._judged.discard(key)
            if circles != self._circles:
                return found
            self._truths[key] = found
        return self._truths[key]

    def _holds(self, script: Script, test: cst.CSTNode, via: Via, deep: int) -> bool | None:
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._holds(script, test.expression, via, deep)
            return None if inner is None else not inner
        if isinstance(test, cst.BooleanOperation):
            sides = [self._holds(script, side, via, deep) for side in (test.left, test.right)]
            decides = isinstance(test.operator, cst.Or)
            if decides in sides:
                return decides
            return None if None in sides else not decides
        fixed = self._literal(script, test, via, 1) if isinstance(test, cst.Name) else ...
        if type(fixed) is bool:
            # `DDP = False`: the program as it is trains in one process.
            return fixed
        learned = self.learned()
        if (known := learned.get(key_of(test))) is not None:
            return known
        if (known := learned.get(opposite_of(test))) is not None:
            return not known
        if isinstance(test, cst.Comparison):
            if dotted(test.left) == "__name__":
                # Another file's block under __name__ does not run.
                return None if script is self.scripts[0] else False
            return self._compares(script, test, via, deep)
        value = constant(test)
        if value is not ...:
            return bool(value)
        name = dotted(test.func if isinstance(test, cst.Call) else test)
        if name is None or (isinstance(test, cst.Call) and test.args):
            return None
        last = name.rsplit(".", 1)[-1]
        if is_true(last):
            return True
        if isinstance(test, cst.Call):
            return None
        found = self._literal(script, test, via, deep, truth=True)
        return None if found is ... else bool(found)

    def _compares(self, script: Script, test: cst.Comparison, via: Via, deep: int) -> bool | None:
        if len(test.comparisons) != 1:
            return None
        operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
        if isinstance(operator, cst.In | cst.NotIn):
            return isinstance(operator, cst.In) if asks_environment(test.left, other) else None
        value = constant(other)
        if value is ...:
            return None
        if type(value) is bool and isinstance(operator, cst.Is | cst.Equal):
            holds = self._holds(script, test.left, via, deep)
            return None if holds is None else holds is value
        found = self._literal(script, test.left, via, deep)
        if type(value) is int and type(found) is not int:
            known = of_the_world(test.left, operator, value)
            if known is not None:
                return known
        if found is ...:
            return None
        if isinstance(operator, cst.Is | cst.Equal):
            return found == value
        if isinstance(operator, cst.IsNot | cst.NotEqual):
            return found != value
        return None

    def _literal(
        self, script: Script, node: cst.CSTNode, via: Via, deep: int, *, truth: bool = False
    ) -> object:
        """Return the only literal value that an expression can have, or `...`.

        With `truth`, values that are all true, or all false, count as one.
        """
        value = constant(node)
        if value is not ... or deep <= 0:
            return value
        name = dotted(node)
        if name is None:
            if isinstance(node, cst.Comparison | cst.BooleanOperation | cst.UnaryOperation):
                found = self._holds(script, node, via, deep - 1)
                return ... if found is None else found
            return ...
        if "." in name:
            if not name.startswith("self.") or self._assigned[name.rsplit(".", 1)[-1]] > 1:
                return ...
            owner = script.class_of(node)
            bound = script.scopes[owner].bindings.get(name, []) if owner is not None else []
        else:
            found_in = script.scope_of(node).find(name)
            bound = found_in[1] if found_in is not None else []
            if found_in is not None and _may_be_global(found_in[0], bound) and self._sets(name):
                return ...
        if len(bound) != 1:
            return ...
        binding = bound[0]
        if binding.kind == "assign" and binding.value is not None and not binding.index:
            return self._literal(script, binding.value, via, deep - 1, truth=truth)
        if binding.kind == "parameter":
            return self._argument(script, binding, via, deep - 1, truth=truth)
        return ...

    def _sets(self, name: str) -> bool:
        """Return whether some function declares a name global, and may change it."""
        if self._assigned[name] or self._executes:
            return True
        return any(name in scope.globals for s in self.scripts for scope in s.scopes.values())

    @cached_property
    def _executes(self) -> bool:
        """Whether a program may set any name, by exec or by the table of its names."""
        calls = (dotted(call.func) for script in self.scripts for call in script.calls)
        return any(name in ("exec", "globals") for name in calls)

    @cached_property
    def _assigned(self) -> Counter[str]:
        """How often an attribute of each name gets a value, on any object."""
        found: Counter[str] = Counter()
        for script in self.scripts:
            for node in script.order:
                if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
                    target = node.target
                    if isinstance(target, cst.Attribute):
                        found[target.attr.value] += 1
        return found

    def _argument(
        self, script: Script, binding: Binding, via: Via, deep: int, *, truth: bool
    ) -> object:
        """Return the one literal that all calls of a function pass for a parameter, or `...`."""
        assert isinstance(binding.node, cst.Param)
        above = script.above(binding.node)
        function = next((n for n in above if isinstance(n, cst.FunctionDef | cst.Lambda)), None)
        if not isinstance(function, cst.FunctionDef):
            return ...
        name = binding.node.name.value
        place = place_of(script, function, name)
        for number, passage in reversed(list(enumerate(via))):
            if passage.function is function:
                given = given_to(passage.call, name, place, binding.value)
                return self._one(passage.script, given, via[:number], deep, truth=truth)
        uses = self.every_call(script, function) or []
        values: set[object] = set()
        circles = self._circles
        alive = [use for use in uses if self.runs(*use)]
        for where, call in alive if alive and circles == self._circles else uses:
            given = given_to(call, name, place, binding.value)
            value = self._one(where, given, (), deep, truth=truth)
            values.add(bool(value) if truth and value is not ... else value)
        return values.pop() if len(values) == 1 else ...

    def _one(
        self,
        script: Script,
        node: cst.BaseExpression | None,
        via: Via,
        deep: int,
        *,
        truth: bool,
    ) -> object:
        return ... if node is None else self._literal(script, node, via, deep, truth=truth)

    def _may_bind(self, script: Script, binding: Binding, node: cst.CSTNode, via: Via) -> bool:
        """Return whether a binding runs on several ranks, and is not overwritten at once."""
        if not self.several_ranks or binding.kind != "assign":
            return True
        if not self.runs(script, binding.node, via):
            return False
        return constant(binding.value) is ... or not self._overwritten(script, binding, node, via)

    def _overwritten(self, script: Script, binding: Binding, node: cst.CSTNode, via: Via) -> bool:
        """Match `sampler = None`, before `if distributed: sampler = ...`."""
        name = dotted(node)
        found = script.scope_of(node).find(name) if name is not None else None
        if found is None or node not in script.order:
            return False
        for other in found[1]:
            if other.kind != "assign" or other is binding:
                continue
            function = script.function_of(other.node)
            if function is not script.function_of(binding.node):
                continue
            if not script.order[binding.node] < script.order[other.node]:
                continue
            within = function is script.function_of(node)
            if within and script.order[other.node] > script.order[node]:
                continue
            if self._always(script, other.node, node, via):
                return True
        return False

    def _always(self, script: Script, node: cst.CSTNode, use: cst.CSTNode, via: Via) -> bool:
        """Return whether a statement runs in every call of its function that comes to a use."""
        below = node
        for parent in script.above(node):
            if isinstance(parent, cst.FunctionDef | cst.Module):
                return True
            if parent is use or script.inside(use, parent):
                return True
            if isinstance(parent, cst.If):
                if self.truth(script, parent.test, via) is not (below is parent.body):
                    return False
            elif isinstance(parent, cst.For | cst.While | cst.Try | cst.ExceptHandler):
                return False
            below = parent
        return True

    def arguments(
        self, script: Script, function: cst.FunctionDef, wanted: str
    ) -> list[tuple[Script, cst.BaseExpression]]:
        """Return what the calls of a function that run pass for one of its parameters."""
        every = super().arguments(script, function, wanted)
        if not self.several_ranks or self._busy:
            return every
        return [(where, value) for where, value in every if self.runs(where, value)] or every

    def _may_take(self, script: Script, node: cst.CSTNode, side: str, via: Via) -> bool:
        """Return whether `a if test else b` may be one of its sides."""
        if not isinstance(node, cst.IfExp):
            return True
        holds = self.truth(script, node.test, via)
        return holds is None or holds is (side == "body")

    def _may_return(self, script: Script, value: cst.CSTNode, via: Via) -> bool:
        """Return whether a function called in this way may return a value."""
        return self.runs(script, value, via)


def _may_be_global(scope: Scope, bound: list[Binding]) -> bool:
    return scope.kind == "module" and any(b.kind == "assign" for b in bound)
