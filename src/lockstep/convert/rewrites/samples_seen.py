"""Print the number of samples that all processes have seen, not that of one."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.blocks import calls_in
from lockstep.convert.analysis.output_calls import shows
from lockstep.convert.work import Work
from lockstep.source.name_uses import mentions, targets
from lockstep.source.tree import dotted, walk

ORDER = 190


def rewrite(work: Work) -> None:
    """Multiply `batch_idx * len(data)` by the number of processes where it is printed."""
    for loader in work.parts.trained_on:
        for loop in work.parts.loops_of(loader):
            if loop.script is work.script:
                for product in _products(loop.node):
                    if _is_shown(work, product):
                        work.draft.insert(product, f" * {work.world}", behind=True)
                        work.done("output", product, "counts the samples of all processes")


def _products(loop: cst.For) -> Iterator[cst.BinaryOperation]:
    """Yield products of the batch's number and its size."""
    counted = any(dotted(n.func) == "enumerate" for n in calls_in(loop.iter))
    if not counted or not isinstance(loop.target, cst.Tuple) or len(loop.target.elements) != 2:
        return
    number, batch = (targets(element.value) for element in loop.target.elements)
    for part in walk(loop.body):
        if (
            isinstance(part, cst.BinaryOperation)
            and isinstance(part.operator, cst.Multiply)
            and mentions(part.left, number, set())
            and isinstance(part.right, cst.Call)
            and isinstance(part.right.func, cst.Name)
            and part.right.func.value == "len"
            and mentions(part.right.args[0].value, batch, set())
        ):
            yield part


def _is_shown(work: Work, node: cst.CSTNode) -> bool:
    """Return whether a value is only printed, directly or through a variable."""
    for parent in work.script.above(node):
        if isinstance(parent, cst.Call) and shows(work, parent):
            return True
        if isinstance(parent, cst.Subscript):
            return False
        if isinstance(parent, cst.Assign):
            return _shown_by_name(work, parent, node)
        if isinstance(parent, cst.BaseSmallStatement):
            return False
    return False


def _shown_by_name(work: Work, statement: cst.Assign, node: cst.CSTNode) -> bool:
    """Return whether `current` of `loss, current = loss.item(), batch * len(X)` is only printed."""
    target: cst.BaseExpression = statement.targets[0].target
    if isinstance(target, cst.Tuple) and isinstance(statement.value, cst.Tuple):
        pairs = zip(target.elements, statement.value.elements, strict=False)
        target = next((name.value for name, value in pairs if node in walk(value)), target)
    if not isinstance(target, cst.Name) or len(statement.targets) > 1:
        return False
    scope = work.script.scope_of(statement)
    uses = [
        part
        for part in work.script.order
        if isinstance(part, cst.Name)
        and part.value == target.value
        and part is not target
        and work.script.scope_of(part) is scope
    ]
    return bool(uses) and all(_is_shown(work, use) for use in uses)
