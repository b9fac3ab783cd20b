"""Gradient accumulation: where several backwards make one step, and how many."""

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
    """Gradient accumulation: several backwards for each step."""

    script: Script
    loop: cst.For | cst.While
    """Its turns end with a step, or only some of them do."""
    backward: Act
    step: Act
    test: cst.If | None
    """What decides that it is time for the step; None if the backwards have a loop of their own."""
    at: Script
    """Where `steps` stands."""
    steps: cst.BaseExpression | None
    """How many backwards there are for a step, where this can be seen."""


def windows(training: Training) -> Iterator[Window]:
    """Where gradients are accumulated: a step every K turns, or after a loop of its own."""
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
    """Whether the step comes whenever the backward does, so that nothing is accumulated."""
    here = [(test, side) for _, test, side in backward.branches]
    return step.beside(backward) and all(
        (test, side) in here or _every(training, script, test.test) is None
        for script, test, side in step.branches
    )


def timed(training: Training, act: Act) -> tuple[cst.If, Script, cst.BaseExpression] | None:
    """The `if` that lets an act happen every K turns only, and K."""
    for script, test, _ in act.branches:
        every = _every(training, script, test.test)
        if every is not None:
            return test, *every
    return None


def _every(
    training: Training, script: Script, test: cst.CSTNode
) -> tuple[Script, cst.BaseExpression] | None:
    """K, if a test counts turns: `(i + 1) % K == 0`, by itself or by name, or `micro == K`."""
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
    """Whether a loop goes through a number of micro-batches."""
    return re.search(r"\brange\(|chunk|split|micro", script.code(node)) is not None


def _count(node: cst.BaseExpression) -> cst.BaseExpression | None:
    for part in walk(node):
        if isinstance(part, cst.Call) and dotted(part.func) == "range" and len(part.args) == 1:
            return part.args[0].value
    return None


def is_one(training: Training, window: Window) -> bool:
    """Whether nothing is accumulated after all: K is 1 by the text, not by a flag's default."""
    if window.steps is None:
        return False
    origins = training.project.origins(window.at, window.steps)
    flags = [
        isinstance(p, cst.Call) and "add_argument" in o.script.code(p.func)
        for o in origins
        for p in o.script.above(o.node)
    ]
    return all(constant(o.node) == 1 for o in origins) and not any(flags)
