"""A condition names a function instead of calling it, so it holds on every rank."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Fix, Found
from lockstep.source.edits import Edit
from lockstep.source.ranks import asks_rank
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import dotted, walk

_FUNCTIONS = ("torch.distributed.get_rank", "torch.distributed.get_world_size")


def look(training: Training) -> Iterator[Found]:
    """Find `if is_main_process:`, where is_main_process is a function."""
    for script in training.project.scripts:
        for branch in (n for n in script.order if isinstance(n, cst.If | cst.IfExp)):
            for node in _tested(branch.test):
                if _is_function(training, script, node):
                    place = script.span(node)[1]
                    name = script.code(node)
                    yield Found(
                        script,
                        node,
                        f"{name} is a function that is not called here, so every rank goes on",
                        fix=Fix(f"call {name}()", (Edit(place, place, "()"),), safe=False),
                    )


def _tested(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the names whose truth, or value, a condition asks for."""
    if isinstance(test, cst.BooleanOperation):
        yield from _tested(test.left)
        yield from _tested(test.right)
    elif isinstance(test, cst.UnaryOperation):
        yield from _tested(test.expression)
    elif isinstance(test, cst.Comparison):
        if isinstance(test.comparisons[0].operator, cst.Equal | cst.NotEqual):
            yield test.left
    elif dotted(test) is not None:
        yield test


def _is_function(training: Training, script: Script, node: cst.BaseExpression) -> bool:
    if dotted(node) is None or not asks_rank(node):
        return False
    if training.project.name(script, node) in _FUNCTIONS:
        return True
    made = training.project.function(script, node)
    if made is None or made[1].decorators:
        return False
    # A name that is also a variable holds whatever it was given.
    name = dotted(node) or ""
    found = script.scope_of(node).find(name)
    kinds = {binding.kind for binding in found[1]} if found is not None else {"import"}
    returns = any(isinstance(part, cst.Return) for part in walk(made[1].body))
    return kinds <= {"function", "import"} and returns
