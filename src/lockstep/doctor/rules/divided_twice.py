"""The loss is divided by the number of ranks, and DDP divides the gradients once more."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loss import feeding, loss_of
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import training_loops
from lockstep.source.tree import dotted

_SIZE = re.compile(r"(get_|num_|n_|dist_|ddp_)*(world_?size|replicas)", re.I)
_JOINS = re.compile(r"all_?reduce|gather|register_comm_hook|reduce_scatter")
"""Code after which a loss covers the samples of all ranks, or gradients are added otherwise."""
_NUMBER = re.compile(r"\.item\(\)|\.detach\(\)|\.data\b")
_COUNT = re.compile(r"batch|size|num|steps|workers|\blr\b|rate|count", re.I)


def look(training: Training) -> Iterator[Found]:
    """Find losses of a DDP model that are divided by the number of ranks before backward."""
    if not training.copies or any("register_comm_hook" in s.text for s in training.project.scripts):
        return
    seen: set[cst.CSTNode] = set()
    for _, _, found in training_loops(training):
        for act in (act for act in found if act.kind == "backward" and act.call not in seen):
            seen.add(act.call)
            loss = loss_of(act.call)
            parts = list(_terms(training, act.script, loss)) if loss is not None else []
            joined = feeding(training, act.script, loss) if loss is not None else ()
            if any(isinstance(n, cst.Call) and _JOINS.search(s.code(n.func)) for s, n in joined):
                continue
            if any(_scales(training, s, n, cst.Multiply, cst.MultiplyAssign) for s, n in parts):
                continue
            for script, node in parts:
                if _scales(training, script, node, cst.Divide, cst.DivideAssign):
                    reason = "DDP averages the gradients over the ranks, so this divides them twice"
                    # Another function may compute a value that only looks like the loss.
                    sure = script.function_of(node) is act.script.function_of(act.call)
                    yield Found(script, node, reason, certain=sure)
                    break


def _terms(
    training: Training, script: Script, loss: cst.CSTNode
) -> Iterator[tuple[Script, cst.CSTNode]]:
    """Yield what a loss is computed from by arithmetic, not what its functions are given."""
    for where, node in feeding(training, script, loss):
        above = [parent for parent in where.above(node) if isinstance(parent, cst.Arg)]
        # `self.loss(batch / size)`: the quotient is an argument.
        if not above and _is_loss(where, node) and not _combines(where, node):
            yield where, node


def _combines(script: Script, node: cst.CSTNode) -> bool:
    """Return whether the function around a quotient combines values of all ranks, to log them."""
    function = script.function_of(node)
    return (
        function is not None
        and re.search(r"all_?reduce|dist\.reduce|gather\(", script.code(function)) is not None
    )


def _scales(
    training: Training,
    script: Script,
    node: cst.CSTNode,
    binary: type[cst.CSTNode],
    assigned: type[cst.CSTNode],
) -> bool:
    """Return whether a part of the loss is divided, or multiplied, by the number of ranks."""
    above = script.parents.get(node)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, binary):
        if isinstance(above, cst.BinaryOperation) and above.right is node:
            # `loss / (steps * ranks)`: the product is a divisor.
            return False
        return not _NUMBER.search(script.code(node.left)) and _is_size(training, script, node.right)
    if isinstance(above, cst.AugAssign) and above.value is node:
        return isinstance(above.operator, assigned) and _is_size(training, script, node)
    return False


def _is_loss(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a quotient is assigned to, or named as, a loss, and not a size of a batch."""
    statement = script.statement_of(node)
    target: cst.CSTNode | None = None
    if isinstance(statement, cst.Assign):
        target = statement.targets[0].target
    elif isinstance(statement, cst.AugAssign):
        target = statement.target
    return target is None or _COUNT.search(script.code(target)) is None


def _is_size(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Match `world_size`, a name for it, and a product that contains it."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        return any(_is_size(training, script, side) for side in (node.left, node.right))
    name = dotted(node.func if isinstance(node, cst.Call) else node)
    if name is None:
        return False
    if _SIZE.fullmatch(name.rsplit(".", 1)[-1]):
        return True
    makers = training.project.makers(script, node) if not isinstance(node, cst.Call) else []
    return any(made == "torch.distributed.get_world_size" for _, _, made in makers)
