"""Refuse layers that each learn from their own loss, with steps inside the model."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.gradients import is_backward
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import training_loops
from lockstep.source.tree import code, dotted, walk

ORDER = Stage.METHOD, 40
_ADVICE = (
    "Give the model one loss and one step per batch, or call all_reduce on each layer's gradients "
    "by hand before its own step."
)


def look(training: Training) -> Iterator[Refusal]:
    """Find modules that step an optimizer of their parameters, and steps in loops over layers."""
    for script in training.project.scripts:
        for node in script.scopes:
            if isinstance(node, cst.ClassDef) and _is_module(training, script, node):
                step = _own_step(training, script, node)
                if step is not None and training.used(script, step):
                    yield _refusal(script, step, f"`{node.name.value}` trains itself")
    for script, loop, found in training_loops(training):
        kinds = [act.kind for act in found if not act.loops]
        steps = {"backward", "step"} <= set(kinds)
        if steps and isinstance(loop, cst.For) and _passes_on(script, loop):
            yield _refusal(script, loop, "every layer takes a step from its own loss")


def _refusal(script: Script, node: cst.CSTNode, what: str) -> Refusal:
    return Refusal(
        script,
        node,
        f"{what} inside the model and bypasses DDP, which averages gradients for whole calls only",
        _ADVICE,
    )


def _is_module(training: Training, script: Script, node: cst.ClassDef, depth: int = 0) -> bool:
    for base in node.bases:
        if (training.project.name(script, base.value) or "").startswith("torch.nn."):
            return True
        made = training.project.definition(script, base.value)
        above = (made[0], made[1]) if made and isinstance(made[1], cst.ClassDef) else None
        if above is not None and depth < 5 and _is_module(training, *above, depth + 1):
            return True
    return False


def _own_step(training: Training, script: Script, owner: cst.ClassDef) -> cst.Call | None:
    """Return the step that a module takes after a backward, with an optimizer of its parameters."""
    part = _is_part(training, owner)
    names = {
        name
        for name, bindings in script.scopes[owner].bindings.items()
        for b in bindings
        if isinstance(b.value, cst.Call)
        and (training.project.name(script, b.value.func) or "").startswith("torch.optim.")
        and ("self.parameters()" in script.code(b.value) or part)
    }
    calls = [c for name in ("backward", "step") for c in script.named_last(name)]
    inside = [call for call in calls if names and script.inside(call, owner)]
    steps = [call for call in inside if not is_backward(script, call)]
    own = [call for call in steps if (dotted(call.func) or "").removesuffix(".step") in names]
    return own[0] if own and len(steps) < len(inside) else None


def _is_part(training: Training, owner: cst.ClassDef) -> bool:
    """Return whether objects of a class are put into a list of layers."""
    for script, call in training.project.uses.get(owner, ()):
        for parent in script.above(call):
            if isinstance(parent, cst.ListComp | cst.List | cst.GeneratorExp):
                return True
            if isinstance(parent, cst.Call) and code(parent.func).endswith(
                (".append", "Sequential")
            ):
                return True
            if isinstance(parent, cst.BaseSmallStatement):
                break
    return False


def _passes_on(script: Script, loop: cst.For) -> bool:
    """Return whether each turn feeds a layer with the previous result: `x = layer(x.detach())`."""
    layers = _names(loop.target)
    for node in walk(loop.body):
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
            call = node.value
            picked = isinstance(call.func, cst.Subscript)
            head = call.func.value if isinstance(call.func, cst.Subscript) else call.func
            if not (picked and _names(call.func) & layers) and dotted(head) not in layers:
                continue
            made = script.code(node.targets[0].target)
            given = set().union(*map(_names, call.args))
            if made in given or any(_hands_over(n, made, given) for n in walk(loop.body)):
                return True
    return False


def _hands_over(node: cst.CSTNode, made: str, given: set[str]) -> bool:
    """Return whether a node is `x = out.detach()`, where `out = layer(x)`."""
    if not isinstance(node, cst.Assign) or not isinstance(node.targets[0].target, cst.Name):
        return False
    return node.targets[0].target.value in given and made in _names(node.value)


def _names(node: cst.CSTNode) -> set[str]:
    return {part.value for part in walk(node) if isinstance(part, cst.Name)}
