"""Gradient accumulation without `no_sync` runs an all-reduce for every micro-batch."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.accumulation import is_one, windows
from lockstep.source.ranks import guarded
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import Act, Kind, acts, kind_of

_DDP = "DistributedDataParallel"
_SWITCHES = "no_sync", "require_backward_grad_sync", "set_requires_gradient_sync"
"""Names that switch the all-reduce off for a while."""


def look(training: Training) -> Iterator[Found]:
    """Find windows of a DDP model in which every backward reduces the gradients."""
    names = [training.project.name(wrap.script, wrap.call.func) or "" for wrap in training.wraps]
    if not names or not all(n.startswith("torch.") and n.endswith(_DDP) for n in names):
        return
    wraps = [wrap.call for wrap in training.wraps]
    texts = [script.text for script in training.project.scripts]
    known = any(switch in text for text in texts for switch in _SWITCHES)
    for window in windows(training):
        if is_one(training, window) or guarded(training.project, window.script, window.loop):
            continue
        if not known:
            yield Found(
                window.backward.script,
                window.backward.call,
                "every micro-step reduces the gradients, though only the last one needs to",
                certain=False,
            )
            continue
        # DDP decides in the forward whether the next backward will reduce.
        here = acts(training, window.script, window.loop.body, _with_forward(training, wraps))
        forwards = [act for act in here if act.kind == "forward"]
        quiet = [act for act in here if act.kind == "backward" and _unsynced(training, act)]
        if quiet and forwards and not any(_unsynced(training, act) for act in forwards):
            script, block = _unsynced(training, quiet[0])[0]
            yield Found(
                script,
                block.items[0].item,
                "the forward is outside of no_sync, so the backward inside it still reduces",
                certain=False,
            )


def _with_forward(training: Training, wraps: list[cst.Call]) -> Kind:
    def kind(script: Script, call: cst.Call) -> str | None:
        if isinstance(call.func, cst.Name | cst.Attribute):
            for origin in training.project.origins(script, call.func):
                if origin.call is not None and origin.call in wraps:
                    return "forward"
        return kind_of(script, call)

    return kind


def _unsynced(training: Training, act: Act) -> list[tuple[Script, cst.With]]:
    """Return the `with` blocks around this act that may be a no_sync."""
    return [
        (script, block)
        for script, block in act.withs
        for item in block.items
        for node in [item.item, *(o.node for o in training.project.origins(script, item.item))]
        if "no_sync" in script.code(node) or _hides(training, script, node)
    ]


def _hides(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Match `with ddp_sync(model, last)`, a function of the project that uses no_sync."""
    made = training.project.function(script, node.func) if isinstance(node, cst.Call) else None
    return made is not None and "no_sync" in made[0].code(made[1])
