"""Accumulated losses are not divided: K mean losses sum to a gradient K times as large."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.accumulation import Window, is_one, windows
from lockstep.source.loss import feeding, loss_of
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import Act, acts
from lockstep.source.tree import argument, constant, dotted, walk

_MEANS = re.compile(r"torch\.nn\.(functional\.\w*(entropy|loss)\w*|\w+Loss)$")
_FORGIVING = re.compile(r"Adam|Lamb|Lion|Adafactor|RMSprop|Adagrad")
"""Optimizers whose step hardly depends on the size of the gradient."""
_COUNTS = re.compile(r"\blen\(|num|total|steps|size|samples|count|item\(|detach\(")


def look(training: Training) -> Iterator[Found]:
    """Find windows in which nothing divides the loss, and last windows that are cut short."""
    for window in windows(training):
        if is_one(training, window):
            continue
        script, call = window.backward.script, window.backward.call
        loss = loss_of(call)
        if loss is None:
            continue
        parts = list(feeding(training, script, loss))
        if _is_sum(parts) or _grad_is_touched(training, window):
            continue
        divided = _divided(training, window, parts)
        if not divided:
            times = f"{window.at.code(window.steps)} times" if window.steps else "over and over"
            reason = f"the loss is added up {times} and never divided"
            yield Found(script, call, reason, certain=_certain(training, window, parts))
        elif window.test is not None and _drops_the_rest(training, window):
            yield Found(
                window.script,
                window.loop,
                "no step uses the batches after the last full window: their gradients are zeroed",
                certain=False,
            )
        elif window.steps is not None and _ends_early(window, parts):
            yield Found(
                script,
                call,
                "the last window of an epoch may be shorter, but its loss is divided by "
                f"{window.at.code(window.steps)}",
                certain=False,
            )


def _is_sum(parts: list[tuple[Script, cst.CSTNode]]) -> bool:
    """Return whether the loss is a sum on purpose, so that adding micro-batches is right."""
    text = " ".join(s.code(n) for s, n in parts if isinstance(n, cst.Call))
    return re.search(r"reduction\s*=\s*.sum|\bsum\(", text) is not None


def _grad_is_touched(training: Training, window: Window) -> bool:
    """Return whether the script edits gradients by hand, and may divide them there."""
    script, body = window.script, window.loop.body
    return training.project.reaches(
        script, body, lambda _, n: isinstance(n, cst.Attribute) and n.attr.value == "grad"
    )


def _divided(training: Training, w: Window, parts: list[tuple[Script, cst.CSTNode]]) -> bool:
    """Return whether the loss is divided, anything is divided by K, or backward gets K."""
    for script, node in parts:
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
            return True
        if isinstance(node, cst.Call) and re.search(r"\b(div_?|mul_?)$", script.code(node.func)):
            return True
        above = script.parents.get(node)
        if isinstance(above, cst.AugAssign) and isinstance(
            above.operator, cst.DivideAssign | cst.MultiplyAssign
        ):
            return True
        scaled = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply)
        if scaled and isinstance(above, cst.Assign):
            return True
    name = (dotted(w.steps) or "").rsplit(".", 1)[-1] if w.steps is not None else ""
    return bool(name) and any(_by(s, n, name) for s in training.project.scripts for n in s.order)


def _by(script: Script, node: cst.CSTNode, name: str) -> bool:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        right = [(dotted(n) or "").rsplit(".", 1)[-1] for n in walk(node.right)]
        return name in right and _COUNTS.search(script.code(node.left)) is None
    if isinstance(node, cst.Call):
        given = [(dotted(arg.value) or "").rsplit(".", 1)[-1] for arg in node.args]
        return name in given and any("loss" in text for text in given)
    return False


def _certain(training: Training, window: Window, parts: list[tuple[Script, cst.CSTNode]]) -> bool:
    """Return whether the loss is known to be a mean and the optimizer depends on its size."""
    means = any(
        _MEANS.match(name) and argument(call, "reduction") is None
        for script, node in parts
        if isinstance(node, cst.Call)
        for _, call, name in training.project.made(script, node)
    )
    return means and not _forgives(training, window.step)


def _forgives(training: Training, step: Act) -> bool:
    assert isinstance(step.call.func, cst.Attribute)
    owner = step.call.args[0].value if step.call.args else step.call.func.value
    names = [name for _, _, name in training.project.makers(step.script, owner)]
    return not names or any(_FORGIVING.search(name) for name in names)


def _ends_early(window: Window, parts: list[tuple[Script, cst.CSTNode]]) -> bool:
    """Match `i % K == 0 or i == len(loader)` with a division by K itself."""
    name = dotted(window.steps) if window.steps is not None else None
    divisors = [
        dotted(node.right)
        for _, node in parts
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide)
    ]
    test = window.at.code(window.test.test) if window.test is not None else ""
    return name is not None and divisors == [name] and " or " in test and "len(" in test


def _names(node: cst.CSTNode) -> set[str]:
    return {part.value for part in walk(node) if isinstance(part, cst.Name)}


def _drops_the_rest(training: Training, window: Window) -> bool:
    """Return whether an epoch zeroes first and steps only after K batches, never after the loop."""
    script, loop, test = window.script, window.loop, window.test
    assert test is not None
    plain = isinstance(test.test, cst.Comparison) and isinstance(
        test.test.left, cst.BinaryOperation
    )
    counted = _names(loop.target) & _names(test.test) if isinstance(loop, cst.For) else set()
    if not plain or not counted or constant(window.steps) == 1:
        return False
    epochs = [n for n in script.above(loop) if isinstance(n, cst.For | cst.While | cst.FunctionDef)]
    if not epochs or not training.project.loops_around(script, loop):
        return False
    here = acts(training, script, epochs[0].body)
    outside = [a for a in here if not a.loops and not a.branches]
    order = script.order
    zeroed = any(
        a.kind == "zero_grad" and a.script is script and order[a.call] < order[loop]
        for a in outside
    )
    return zeroed and not any(a.kind == "step" for a in here if not a.loops)
