"""The script saves the wrapper's state, whose keys all begin with `module.`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Fix, Found
from lockstep.source.edits import Edit
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, walk

_STRIPS = re.compile(r"[\"'](\w+\.)?module\.|\[7:\]|len\([\"']module|\w*prefix\w*\(", re.I)
_OTHERS = re.compile("optim|sched|scaler|sampler|loader|ema", re.I)
_ASKS = re.compile(
    r"\.module\b|[\"']module[\"']|isinstance|(?<!torch.)distributed|ddp|world_size", re.I
)


def look(training: Training) -> Iterator[Found]:
    """Find state_dict() of a DDP model inside torch.save, unless the keys are renamed later."""
    if not training.copies or any(_STRIPS.search(s.text) for s in training.project.scripts):
        return
    for script, call in training.methods("load_state_dict"):
        assert isinstance(call.func, cst.Attribute)
        owner = call.func.value
        if training.wrapped(script, owner) or not _is_known(training, script, owner):
            return
    loaded = {text for place in training.named("torch.load") for text in _path(training, *place, 0)}
    for script, save in training.named("torch.save"):
        state = argument(save, "obj", 0)
        again = any(text in loaded for text in _path(training, script, save, 1))
        for where, call in _states(training, script, state) if state is not None else ():
            yield Found(
                where,
                call,
                "every key of this state begins with module., because it is the wrapper's state",
                certain=again,
                fix=_fix(where, call),
            )


def _is_known(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether the target of a load is known, or is no model."""
    if _OTHERS.search(script.code(node)):
        return True
    origins = training.project.origins(script, node)
    return all(o.call is not None or isinstance(o.node, cst.Attribute) for o in origins)


def _path(training: Training, script: Script, call: cst.Call, place: int) -> list[str]:
    """Return the texts that a path may come from."""
    value = argument(call, "f", place)
    origins = training.project.origins(script, value) if value is not None else []
    return [origin.script.code(origin.node) for origin in origins]


def _states(
    training: Training, script: Script, state: cst.CSTNode
) -> Iterator[tuple[Script, cst.Call]]:
    """Yield the calls of the wrapper's state_dict that a saved value contains."""
    for origin in training.project.origins(script, state):
        for node in walk(origin.node):
            if isinstance(node, cst.Name | cst.Attribute) and isinstance(
                origin.script.parents.get(node), cst.DictElement
            ):
                if node is not state:
                    yield from _states(training, origin.script, node)
            elif (
                isinstance(node, cst.Call)
                and isinstance(node.func, cst.Attribute)
                and node.func.attr.value == "state_dict"
                and _is_wrapper(training, origin.script, node.func.value)
                and not _is_one_of_two(origin.script, node)
            ):
                yield origin.script, node


def _is_wrapper(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a value is in DDP and nothing unwraps it on the way here."""
    origins = [origin.node for origin in training.project.origins(script, node)]
    if any(isinstance(n, cst.Attribute) and n.attr.value == "module" for n in origins):
        return False
    return training.wrapped(script, node)


def _is_one_of_two(script: Script, node: cst.CSTNode) -> bool:
    """Match `model.module.state_dict() if distributed else model.state_dict()`, also as an if."""
    for parent in script.above(node):
        if isinstance(parent, cst.IfExp) and _ASKS.search(script.code(parent)):
            return True
        if isinstance(parent, cst.If):
            other = script.code(parent.orelse) if parent.orelse is not None else ""
            if _ASKS.search(script.code(parent.test)) or ".module" in other:
                return True
        if isinstance(parent, cst.FunctionDef):
            return False
    return False


def _fix(script: Script, call: cst.Call) -> Fix:
    assert isinstance(call.func, cst.Attribute)
    here = script.span(call.func.value)[1]
    name = script.code(call.func.value)
    # Code elsewhere may rely on the keys as they are.
    return Fix(f"save {name}.module.state_dict()", (Edit(here, here, ".module"),), safe=False)
