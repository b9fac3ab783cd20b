"""N ranks take batches N times as large with the learning rate of one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loaders import Loader
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, spreads

_WORLD = re.compile(
    r"world|(n|num|number_of)_?(gpus?|replicas?|devices?|nodes?|ranks?|proc\w*)\b|ngpus|device_count"
    r"|hvd\.size|\b(gpus|replicas)\b",
    re.I,
)
_RATE = re.compile(r"(^|[^a-z])lrs?($|[^a-z])|learning.?rate|batch", re.I)
_NOTE = re.compile(r"world|gpu|replica|ranks?\b|node|process|global|effective|total|scale", re.I)

_SCALES = cst.Multiply, cst.MultiplyAssign, cst.FloorDivide, cst.FloorDivideAssign


def look(training: Training) -> Iterator[Found]:
    """Find SGD with a constant rate and a loader with a constant batch per rank."""
    batches = [_batch(loader) for loader in training.loaders if loader.trains]
    if not batches or None in batches or _is_thought_of(training):
        return
    for script, call in training.named("torch.optim.SGD", "torch.optim.sgd.SGD"):
        rate = argument(call, "lr", 1)
        if rate is None or spreads(call):
            continue
        values = training.project.constants(script, rate)
        if len(values) != 1 or not isinstance(values[0], float | int):
            continue
        yield Found(
            script,
            call,
            f"is the rate {values[0]:g} meant for one batch of {batches[0]}? Each rank takes one, "
            "so the effective batch grows with the number of ranks",
            certain=False,
        )


def _batch(loader: Loader) -> int | None:
    """Return the batch size if it is one number for any world size."""
    values = [] if loader.unclear else loader.constants("batch_size")
    return values[0] if len(values) == 1 and isinstance(values[0], int) else None


def _is_thought_of(training: Training) -> bool:
    """Return whether the program relates the rate or the batch to the number of ranks."""
    for script in training.project.scripts:
        for comment in re.findall(r"#.*", script.text):
            if _RATE.search(comment) and _NOTE.search(comment):
                return True
        if any(_joins(script, node) for node in script.order):
            return True
    return False


def _joins(script: Script, node: cst.CSTNode) -> bool:
    if isinstance(node, cst.SimpleString | cst.ConcatenatedString):
        text = script.code(node)
        return bool(_RATE.search(text) and _NOTE.search(text))
    if isinstance(node, cst.BinaryOperation | cst.AugAssign) and isinstance(node.operator, _SCALES):
        # A value scaled by the number of ranks may reach the rate or the batch.
        return _WORLD.search(script.code(node)) is not None
    if isinstance(node, cst.BinaryOperation | cst.Assign | cst.AugAssign):
        text = script.code(node)
        return bool(_RATE.search(text) and _WORLD.search(text))
    if isinstance(node, cst.Call):
        name = script.code(node.func)
        return bool(re.search(r"lr|rate|scale", name) and _WORLD.search(script.code(node)))
    return False
