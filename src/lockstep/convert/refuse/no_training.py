"""Refuse programs without a training loop, and name the place where the search ended."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.blocks import bindings_of
from lockstep.convert.analysis.losses import Loss, losses
from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.loader_loops import iterated
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import dotted

ORDER = Stage.NO_TRAINING, 10
_KNOWN = ("torch.", "numpy.", "itertools.", "random.", "math.", "./", "glob.", "os.", "copy.")
_PLAIN = {"range", "zip", "list", "enumerate", "iter", "sorted", "reversed", "open", "map"}


def look(training: Training) -> Iterator[Refusal]:
    """Find that there is no backward, no loop around one, or no visible source of the data."""
    script = training.project.scripts[0]
    found = losses(training)
    if not found:
        yield Refusal(
            script,
            script.tree,
            "no training was found: nothing calls backward()",
            "Name the script that holds the training loop.",
        )
        return
    if training.loaders:
        return
    lost = [place for loss in found if (place := _lost(training, loss)) is not None]
    if len(lost) == len(found):
        yield lost[0]


def _lost(training: Training, loss: Loss) -> Refusal | None:
    """Return why the data of a loss cannot be seen, or None if they can."""
    loops = training.project.loops_around(loss.script, loss.backward)
    line = loss.script.place(loss.backward).start.line
    if not loops:
        return Refusal(
            loss.script,
            loss.backward,
            f"no loop was found around backward() in line {line}, so its batches are not known",
            "Name the script whose loop reaches this backward().",
        )
    for script, loop in loops:
        source = _hidden(training, script, loop) if isinstance(loop, cst.For) else None
        if source is not None:
            where, node = source
            return Refusal(
                where,
                node,
                f"the batches come from {_title(training, where, node)} in line "
                f"{where.place(node).start.line}, and lockstep can only divide "
                "torch.utils.data.DataLoader here",
                "Make the batches with torch.utils.data.DataLoader, in this script or in a module "
                "beside it.",
            )
    return None


def _title(training: Training, script: Script, node: cst.CSTNode) -> str:
    if isinstance(node, cst.Call):
        return training.project.title(script, node.func)
    return f"`{script.code(node)}`, which no code here provides,"


def _hidden(training: Training, script: Script, loop: cst.For) -> tuple[Script, cst.CSTNode] | None:
    """Return the call or name that a loop's data come from, if its source was not read."""
    project = training.project
    for origin in project.origins(script, iterated(project, script, loop.iter)):
        node = origin.node
        if isinstance(node, cst.Call):
            name = project.name(origin.script, node.func) or ""
            plain = dotted(node.func) in _PLAIN or name.startswith(_KNOWN)
            if not plain and name and project.definition(origin.script, node.func) is None:
                return origin.script, node
        elif isinstance(node, cst.Name):
            known = node in origin.script.order
            bindings = bindings_of(origin.script, node) if known else []
            if bindings and all(binding.kind == "parameter" for binding in bindings):
                return origin.script, node
    return None
