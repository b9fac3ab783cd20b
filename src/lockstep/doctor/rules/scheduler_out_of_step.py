"""A scheduler that only some ranks step gives the ranks different learning rates."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.ranks import asks_rank, divides, guarded
from lockstep.source.script import Script
from lockstep.source.training import Training

_NAMED = re.compile(r"sched", re.I)


def look(training: Training) -> Iterator[Found]:
    """Find steps of a scheduler, or of an optimizer, in a branch on the rank."""
    for script, call in training.methods("step"):
        assert isinstance(call.func, cst.Attribute)
        owner = call.func.value
        makers = training.project.makers(script, owner)
        names = [name for _, _, name in makers]
        known = any(name.startswith("torch.optim.") for name in names)
        if not known and not _NAMED.search(script.code(owner).rsplit(".", 1)[-1]):
            continue
        what = "learning rate" if _NAMED.search(script.code(owner)) else "weights"
        reason = f"only some ranks make this step, so the ranks differ in their {what}"
        branch = next((p for p in script.above(call) if _is_on_rank(p)), None)
        if isinstance(branch, cst.If):
            if not _steps_elsewhere(script, branch, call):
                yield Found(script, call, reason)
        elif (
            training.runs(script, call)
            and guarded(training.project, script, call, 1)
            and not _is_only_there(makers)
        ):
            yield Found(script, call, reason, certain=False)


def _is_only_there(makers: list[tuple[Script, cst.Call, str]]) -> bool:
    """Return whether the other ranks have no such object, so that they miss no step."""
    return bool(makers) and all(
        any(isinstance(p, cst.If) and asks_rank(p.test) for p in script.above(call))
        for script, call, _ in makers
    )


def _is_on_rank(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.If) and divides(node.test)


def _steps_elsewhere(script: Script, branch: cst.If, call: cst.Call) -> bool:
    """Return whether the other side of the branch makes the same step."""
    if branch.orelse is None:
        return False
    text = script.code(call.func)
    inside = script.inside(call, branch.body)
    other: cst.CSTNode = branch.orelse if inside else branch.body
    return text in script.code(other)
