"""A schedule counts the steps of one process: N ranks take 1/N of them in each epoch."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loaders import Loader
from lockstep.source.loss import feeding
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument

_COUNTS = {
    "torch.optim.lr_scheduler.CosineAnnealingLR": (("T_max", 1),),
    "torch.optim.lr_scheduler.OneCycleLR": (("total_steps", 2), ("steps_per_epoch", 4)),
    "torch.optim.lr_scheduler.LinearLR": (("total_iters", 3),),
    "torch.optim.lr_scheduler.PolynomialLR": (("total_iters", 1),),
    "torch.optim.lr_scheduler.StepLR": (("step_size", 1),),
}
_TRANSFORMERS = re.compile(r"transformers\.(\w+\.)*get_\w*schedule\w*")
_RANKS = re.compile(
    r"world|replica|n_?gpu|num_gpu|ngpu|n_?proc|device_count|\branks?\b|nodes", re.I
)


def look(training: Training) -> Iterator[Found]:
    """Find schedules whose length follows from the length of a data set that the ranks share."""
    shared = [one for one in training.loaders if one.trains and one.split_by()[0]]
    if not shared or any(_cuts_batch(training, loader) for loader in shared):
        return
    for script, call, given in _lengths(training):
        parts = list(feeding(training, script, given))
        if any(_RANKS.search(where.code(node)) for where, node in parts):
            continue
        if any(_is_steps(training, where, node, shared) for where, node in parts):
            reason = "this schedule counts the batches of one process, and each rank takes fewer"
            yield Found(script, call, reason, certain=False)


def _lengths(training: Training) -> Iterator[tuple[Script, cst.Call, cst.BaseExpression]]:
    for script in training.project.scripts:
        for call in script.calls:
            name = training.project.name(script, call.func) or ""
            wanted = _COUNTS.get(name, ())
            if _TRANSFORMERS.fullmatch(name):
                wanted = (("num_training_steps", 2),)
            for key, place in wanted:
                given = argument(call, key, place)
                if given is not None:
                    yield script, call, given
                    break


def _cuts_batch(training: Training, loader: Loader) -> bool:
    """Return whether the batch of a rank is the global batch divided by the ranks."""
    given = loader.given("batch_size")
    if given is None:
        return False
    parts = feeding(training, loader.script, given)
    return any(_RANKS.search(where.code(node)) for where, node in parts)


def _is_steps(training: Training, script: Script, node: cst.CSTNode, shared: list[Loader]) -> bool:
    """Match `len(data) / batch`, with the data of a loader that the ranks share."""
    if not isinstance(node, cst.BinaryOperation):
        return False
    if not isinstance(node.operator, cst.Divide | cst.FloorDivide):
        return False
    left = node.left
    if not isinstance(left, cst.Call) or script.code(left.func) != "len" or not left.args:
        return False
    whole = [(o.node, o.index) for loader in shared for o in loader.origins("dataset")]
    measured = training.project.origins(script, left.args[0].value)
    return any((o.node, o.index) in whole for o in measured)
