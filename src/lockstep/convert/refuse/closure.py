"""Refuse optimizers that evaluate the loss themselves, several times per step, as L-BFGS does."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.gradients import is_backward
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument

ORDER = Stage.METHOD, 30
_ADVICE = "Use an optimizer that takes one gradient per step, such as SGD or Adam."


def look(training: Training) -> Iterator[Refusal]:
    """Find steps that are given a function which calls backward, and steps of L-BFGS."""
    for script, call in training.methods("step"):
        given = argument(call, "closure", 0)
        if given is None or not training.used(script, call):
            continue
        assert isinstance(call.func, cst.Attribute)
        lbfgs = training.project.made_by(script, call.func.value, "torch.optim.LBFGS")
        if lbfgs or _evaluates(training, script, given):
            yield Refusal(
                script,
                call,
                "the optimizer decides how often to compute the loss within a step, and each "
                "replica would decide by its own part of the batch",
                _ADVICE,
            )


def _evaluates(training: Training, script: Script, given: cst.BaseExpression) -> bool:
    """Return whether an argument is a function that calls backward."""
    if isinstance(given, cst.Lambda):
        return training.project.reaches(script, given.body, is_backward)
    made = training.project.function(script, given)
    return made is not None and training.project.reaches(made[0], made[1].body, is_backward)
