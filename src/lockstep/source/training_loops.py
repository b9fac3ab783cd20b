"""Find training loops: their backwards, clips and steps, in the order of the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import libcst as cst

from lockstep.source.gradients import is_backward
from lockstep.source.models import inner_call
from lockstep.source.project import DEPTH
from lockstep.source.script import Function, Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, children, dotted

CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")
_OPTIMIZER = re.compile(r"opt", re.I)
Kind = Callable[[Script, cst.Call], str | None]


@dataclass(frozen=True, eq=False)
class Act:
    """A call that matters for a step, and what it is nested in, from the loop inwards."""

    kind: str
    """One of backward, step, clip, unscale, zero_grad, or a kind that the caller asks for."""
    script: Script
    call: cst.Call
    branches: tuple[tuple[Script, cst.If, bool], ...] = ()
    """The `if`s around it, and whether it is in their true branch."""
    withs: tuple[tuple[Script, cst.With], ...] = ()
    loops: tuple[tuple[Script, cst.For | cst.While], ...] = ()
    """The loops around it, inside the one that was asked about."""

    def beside(self, other: Act) -> bool:
        """Return whether both can happen in one turn: not in two branches of one `if`."""
        sides = {test: side for _, test, side in self.branches}
        return all(sides.get(test, side) == side for _, test, side in other.branches)


def kind_of(script: Script, call: cst.Call) -> str | None:
    """Return what a call does for the step, judging by its name."""
    if is_backward(script, call):
        return "backward"
    last = call.func.attr.value if isinstance(call.func, cst.Attribute) else dotted(call.func) or ""
    if last in CLIPS:
        return "clip"
    if last == "unscale_":
        return "unscale"
    if not isinstance(call.func, cst.Attribute):
        return None
    owner = script.code(call.func.value).rsplit(".", 1)[-1]
    if last == "zero_grad":
        return last
    scaled = "scaler" in owner.lower() and len(call.args) == 1
    plain = _OPTIMIZER.search(owner) is not None and "sched" not in owner.lower()
    return "step" if last == "step" and (scaled or plain) else None


def acts(training: Training, script: Script, node: cst.CSTNode, kind: Kind = kind_of) -> list[Act]:
    """Return what happens below a node in the order of the program, also in called functions."""
    return list(_acts(training, script, node, kind, Act("", script, cst.Call(cst.Name("x"))), ()))


def _acts(
    training: Training,
    script: Script,
    node: cst.CSTNode,
    kind: Kind,
    at: Act,
    inside: tuple[cst.CSTNode, ...],
) -> Iterator[Act]:
    if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
        return
    if isinstance(node, cst.IndentedBlock | cst.Module):
        for item in node.body:
            yield from _acts(training, script, item, kind, at, inside)
            if isinstance(item, cst.If) and item.orelse is None and _goes_on(item.body):
                # After `if not ready: continue`, the rest is its other branch.
                at = replace(at, branches=(*at.branches, (script, item, False)))
        return
    if isinstance(node, cst.If):
        yield from _acts(training, script, node.test, kind, at, inside)
        for side, branch in ((True, node.body), (False, node.orelse)):
            if branch is not None:
                deeper = replace(at, branches=(*at.branches, (script, node, side)))
                yield from _acts(training, script, branch, kind, deeper, inside)
        return
    inner = at
    if isinstance(node, cst.With):
        inner = replace(at, withs=(*at.withs, (script, node)))
    elif isinstance(node, cst.For | cst.While):
        inner = replace(at, loops=(*at.loops, (script, node)))
    for child in children(node):
        part = inner if child is getattr(node, "body", None) else at
        yield from _acts(training, script, child, kind, part, inside)
    if not isinstance(node, cst.Call):
        return
    found = kind(script, node)
    if found is not None:
        yield replace(at, kind=found, script=script, call=node)
        return
    for where, function in called(training, script, node):
        if function not in inside and len(inside) < DEPTH:
            yield from _acts(training, where, function.body, kind, at, (*inside, function))


def _goes_on(body: cst.BaseSuite) -> bool:
    last = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Continue | cst.Return)


def called(training: Training, script: Script, call: cst.Call) -> list[Function]:
    """Return the functions of the project that a call runs; for a module, its forward."""
    project = training.project
    if project.definition(script, call.func) is not None:
        function = project.function(script, call.func)
        return [function] if function is not None else []
    found: list[Function] = []
    plain = isinstance(call.func, cst.Name | cst.Call)
    if not plain and not (dotted(call.func) or "").startswith("self."):
        return found
    waiting = project.origins(script, call.func)
    for origin in waiting:
        if origin.call is None or len(waiting) > 32:
            continue
        if project.definition(origin.script, origin.call.func) is None:
            wrapped = any(wrap.call is origin.call for wrap in training.wraps)
            inner = argument(origin.call, "module", 0) if wrapped else inner_call(origin.call)
            waiting += project.origins(origin.script, inner) if inner is not None else []
        made = project.class_named(origin.script, origin.call.func)
        if made is not None:
            found += [(made[0], method) for method in made[0].methods(made[1], "forward")]
    return found


@lru_cache(maxsize=2)
def training_loops(training: Training) -> list[tuple[Script, cst.For | cst.While, list[Act]]]:
    """Return all loops whose turns reach a backward, with what they do."""
    every = []
    for script in training.project.scripts:
        for node in script.order:
            if isinstance(node, cst.For | cst.While):
                found = acts(training, script, node.body)
                if any(act.kind == "backward" for act in found):
                    every.append((script, node, found))
    return every
