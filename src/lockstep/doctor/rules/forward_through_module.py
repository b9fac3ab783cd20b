"""A forward through `.module` bypasses DDP, so DDP does not exchange the gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.gradients import is_backward, without_gradient
from lockstep.source.loss import feeding, loss_of
from lockstep.source.project import DEPTH
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import Act, training_loops
from lockstep.source.tree import dotted

_BY_HAND = re.compile(r"all_?reduce|average|sync", re.I)
_THROWN = re.compile(r"\.grad *= *None\b")


def look(training: Training) -> Iterator[Found]:
    """Find calls of the inner model in a loop with backward where nothing calls the wrapper."""
    if not training.copies or _exchanged_by_hand(training):
        return
    models = [(wrap.script, wrap.model) for wrap in training.copies if wrap.model is not None]
    inner = {o.call for place in models for o in training.project.origins(*place)} - {None}
    for script in training.project.scripts:
        for call in script.calls:
            if isinstance(script.parents.get(call), cst.Expr):
                continue  # The result is unused: the call initializes lazy layers or warms up.
            bare = _is_bare(training, script, _called(call), inner)
            if not bare and not _is_method(training, script, call):
                continue
            place = _trained(training, script, call)
            if place is None or _is_probe(*place) or _wrapper_runs(training, *place):
                continue
            reason = "this calls the model inside the DDP wrapper, so DDP exchanges no gradients"
            yield Found(script, call, reason)


def _is_probe(script: Script, body: cst.CSTNode) -> bool:
    """Return whether a loop discards its gradients without a step: such a loop trains nothing."""
    text = script.code(body)
    return _THROWN.search(text) is not None and "step(" not in text


def _exchanged_by_hand(training: Training) -> bool:
    return any(
        _BY_HAND.search(script.code(call.func)) and "grad" in script.code(call)
        for script in training.project.scripts
        for call in script.calls
    )


def _called(call: cst.Call) -> cst.BaseExpression:
    func = call.func
    return func.value if isinstance(func, cst.Attribute) and func.attr.value == "forward" else func


def _is_bare(
    training: Training, script: Script, node: cst.CSTNode, inner: set[cst.Call | None]
) -> bool:
    """Return whether this is `ddp.module`, another name for it, or the model that was wrapped."""
    if _is_module(training, script, node):
        return True
    name = dotted(node) or ""
    if not name.startswith("self.") and script.scope_of(node).find(name) is None:
        return False
    if training.project.definition(script, node) or training.wrapped(script, node):
        return False
    origins = training.project.origins(script, node)
    return any(o.call in inner or _is_module(training, o.script, o.node) for o in origins)


def _is_method(training: Training, script: Script, call: cst.Call) -> bool:
    """Match `ddp.module.compute_loss(x)`, if what it returns is what backward is called on."""
    if not isinstance(call.func, cst.Attribute) or not call.args:
        return False
    owner = call.func.value
    origins = training.project.origins(script, owner) if isinstance(owner, cst.Call) else []
    if not _is_module(training, script, owner) and not any(
        _is_module(training, o.script, o.node) for o in origins
    ):
        return False
    for act in _backwards(training):
        loss = loss_of(act.call)
        if loss is not None and any(n is call for _, n in feeding(training, act.script, loss)):
            return True
    return False


def _backwards(training: Training) -> Iterator[Act]:
    for _, _, found in training_loops(training):
        yield from (act for act in found if act.kind == "backward")


def _is_module(training: Training, script: Script, node: cst.CSTNode) -> bool:
    if not isinstance(node, cst.Attribute) or node.attr.value != "module":
        return False
    return training.wrapped(script, node.value)


def _trained(
    training: Training, script: Script, node: cst.CSTNode, depth: int = DEPTH
) -> tuple[Script, cst.CSTNode] | None:
    """Return the body of the loop or function where backward follows, or None without gradients."""
    if without_gradient(script, node, perhaps=True):
        return None
    for parent in script.above(node):
        if isinstance(parent, cst.Attribute) and parent.attr.value == "detach":
            return None
        if isinstance(parent, cst.For | cst.While | cst.FunctionDef):
            if training.project.reaches(script, parent.body, is_backward):
                return script, parent.body
            if not isinstance(parent, cst.FunctionDef) or not depth:
                return None
            uses = training.project.uses.get(parent, [])
            found = (_trained(training, where, call, depth - 1) for where, call in uses)
            return next((place for place in found if place is not None), None)
    return None


def _wrapper_runs(training: Training, script: Script, body: cst.CSTNode) -> bool:
    """Return whether the wrapper is called here, or passed to a function that may call it."""

    def wanted(script: Script, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Call) or _is_method(training, script, node):
            return False
        if training.wrapped(script, _called(node)):
            return not without_gradient(script, node, perhaps=True)
        unused = isinstance(script.parents.get(node), cst.Expr)
        if unused or training.project.function(script, node.func) is not None:
            return False
        return any(training.wrapped(script, arg.value) for arg in node.args)

    return training.project.reaches(script, body, wanted)
