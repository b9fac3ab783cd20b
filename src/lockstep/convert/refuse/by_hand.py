"""Refuse weights that the script updates from their gradients itself, without an optimizer.

DDP averages the gradients of a model that it wraps, so that every replica makes the same update. It
does not know other tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.blocks import assigned_to, bindings_of, receiver
from lockstep.convert.analysis.parts import Parts
from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import training_loops
from lockstep.source.tree import code, walk

ORDER = Stage.METHOD, 50
_IN_PLACE = {"add_", "sub_", "copy_", "addcdiv_", "addcmul_", "set_"}
_OPTIMIZER = re.compile(r"Optimizer|(^|\.)optim\.|SGD|Adam")
_WEIGHTS = {"parameters", "named_parameters"}
_NOISE = re.compile(r"\brand|normal|bernoulli|\bnoise")
_ADVICE = "Let torch.optim do the update: torch.optim.SGD is `w -= lr * w.grad`."


def look(training: Training) -> Iterator[Refusal]:
    """Find `w -= lr * w.grad` and similar updates, unless an optimizer steps in the same loop."""
    parts = Parts(training)
    for script in training.project.scripts:
        if ".grad" not in script.text:
            continue
        for node in script.order:
            if not _updates(training, script, node) or _in_optimizer(script, node):
                continue
            if not training.used(script, node) or _has_step(training, script, node):
                continue
            models = _models(training, script, node)
            if not models:
                why = ", and nothing tells which gradients make one step of the global batch"
            elif not all(parts.is_model(*model) for model in models):
                why = ", and lockstep can only follow a model that an optimizer is given"
            elif _NOISE.search(script.code(node)):
                why = " and at random, with other numbers on every replica"
            else:
                continue
            reason = f"the script updates the weights by hand{why}"
            yield Refusal(script, node, reason, _ADVICE)


def _change(node: cst.CSTNode) -> tuple[cst.CSTNode, list[cst.BaseExpression]] | None:
    """Return the tensor that a node changes, and the values it uses for that."""
    target = receiver(node, *_IN_PLACE)
    if isinstance(node, cst.AugAssign | cst.Assign) and len(assigned_to(node)) == 1:
        target, value = assigned_to(node)[0], [node.value]
    elif isinstance(node, cst.Call):
        value = [arg.value for arg in node.args]
    if target is None:
        return None
    if isinstance(target, cst.Attribute) and target.attr.value == "data":
        target = target.value
    return target, value


def _updates(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node updates a tensor from its own gradient."""
    change = _change(node)
    if change is None:
        return False
    target, value = change
    if isinstance(target, cst.Attribute) and target.attr.value == "grad":
        return False
    own = re.compile(rf"(?<![\w.]){re.escape(code(target))}\.grad\b")
    if any(own.search(code(part)) for part in value):
        return True
    if isinstance(node, cst.Assign):
        return False
    # `velocity = 0.9 * velocity + w.grad`, then `w -= lr * velocity`
    names = [p for v in value for p in walk(v) if isinstance(p, cst.Name)]
    origins = [o for name in names for o in training.project.origins(script, name)]
    return any(o.script is script and own.search(script.code(o.node)) for o in origins)


def _models(
    training: Training, script: Script, node: cst.CSTNode
) -> list[tuple[Script, cst.CSTNode]]:
    """Return the models whose parameters a loop changes one after the other."""
    change = _change(node)
    assert change is not None
    models: list[tuple[Script, cst.CSTNode]] = []
    for binding in bindings_of(script, node, code(change[0])):
        if binding.kind == "augment":
            # `p -= x` does not bind p to another tensor.
            continue
        if binding.kind != "loop" or binding.value is None:
            return []
        for origin in training.project.origins(script, binding.value):
            owners = [receiver(part, *_WEIGHTS) for part in walk(origin.node)]
            given = [(origin.script, owner) for owner in owners if owner is not None]
            if not given:
                return []
            models += given
    return models


def _in_optimizer(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node belongs to the class of an optimizer."""
    owner = script.class_of(node)
    return owner is not None and any(_OPTIMIZER.search(code(b.value)) for b in owner.bases)


def _has_step(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether an optimizer steps in the same loop: then this is an attack on inputs."""
    around = {loop for _, loop in training.project.loops_around(script, node)}
    return any(
        loop in around and any(act.kind == "step" for act in acts)
        for _, loop, acts in training_loops(training)
    )
