"""Find gradient accumulation: where several backwards make one step, and how many."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import libcst as cst

from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.training_loops import Act, training_loops
from lockstep.source.tree import constant, dotted, walk

_COUNTER = re.compile(r"accum|micro", re.I)


@dataclass(frozen=True, eq=False)
class Window:
    """Several backwards for each step."""

    script: Script
    loop: cst.For | cst.While
    """The loop whose turns end with a step, all or some of them."""
    backward: Act
    step: Act
    test: cst.If | None
    """The `if` around the step; None if the backwards have their own loop."""
    at: Script
    """The script that holds `steps`."""
    steps: cst.BaseExpression | None
    """The number of backwards per step, if it can be seen."""


def windows(training: Training) -> Iterator[Window]:
    """Yield where gradients accumulate: a step every K turns, or after an inner loop."""
    for script, loop, found in training_loops(training):
        steps = [act for act in found if act.kind == "step" and not act.loops]
        for number, act in enumerate(found):
            if act.kind != "backward":
                continue
            if not act.loops and not any(_ends(training, step, act) for step in steps):
                for step in steps:
                    every = timed(training, step)
                    if every is not None:
                        yield Window(script, loop, act, step, *every)
                        break
            elif len(act.loops) == 1:
                where, inner = act.loops[0]
                own = any(a.kind == "step" and a.loops[:1] == act.loops for a in found)
                rest = list(takewhile(lambda a: a.kind != "zero_grad", found[number:]))
                after = [a for a in rest if a in steps and a.beside(act)]
                if after and not own and isinstance(inner, cst.For) and _pieces(where, inner.iter):
                    yield Window(script, loop, act, after[0], None, where, _count(inner.iter))


def _ends(training: Training, step: Act, backward: Act) -> bool:
    """Return whether the step runs whenever the backward does, so that nothing accumulates."""
    here = [(test, side) for _, test, side in backward.branches]
    return step.beside(backward) and all(
        (test, side) in here or _every(training, script, test.test) is None
        for script, test, side in step.branches
    )


def timed(training: Training, act: Act) -> tuple[cst.If, Script, cst.BaseExpression] | None:
    """Return the `if` that lets an act happen every K turns only, and K."""
    for script, test, _ in act.branches:
        every = _every(training, script, test.test)
        if every is not None:
            return test, *every
    return None


def _every(
    training: Training, script: Script, test: cst.CSTNode
) -> tuple[Script, cst.BaseExpression] | None:
    """Return K, if a test counts turns: `(i + 1) % K == 0`, perhaps by name, or `micro == K`."""
    parts = [(script, node) for node in walk(test)]
    for node in walk(test):
        if isinstance(node, cst.Name | cst.Attribute):
            for origin in training.project.origins(script, node):
                if isinstance(origin.node, cst.Comparison | cst.UnaryOperation):
                    parts += [(origin.script, part) for part in walk(origin.node)]
    for where, node in parts:
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
            return where, node.right
        if isinstance(node, cst.Comparison) and _COUNTER.search(where.code(node)):
            target = node.comparisons[0]
            counts = isinstance(target.operator, cst.Equal | cst.GreaterThanEqual)
            if counts and constant(target.comparator) is ...:
                return where, target.comparator
    return None


def _pieces(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a loop goes through micro-batches."""
    return re.search(r"\brange\(|chunk|split|micro", script.code(node)) is not None


def _count(node: cst.BaseExpression) -> cst.BaseExpression | None:
    for part in walk(node):
        if isinstance(part, cst.Call) and dotted(part.func) == "range" and len(part.args) == 1:
            return part.args[0].value
    return None


def is_one(training: Training, window: Window) -> bool:
    """Return whether K is 1 in the text, not only by a flag's default: nothing accumulates."""
    if window.steps is None:
        return False
    origins = training.project.origins(window.at, window.steps)
    flags = [
        isinstance(p, cst.Call) and "add_argument" in o.script.code(p.func)
        for o in origins
        for p in o.script.above(o.node)
    ]
    return all(constant(o.node) == 1 for o in origins) and not any(flags)
