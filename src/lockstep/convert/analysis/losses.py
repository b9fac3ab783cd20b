"""Find the losses of a program: each backward, and all expressions that its loss is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from lockstep.source.loss import feeding, loss_of
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import dotted

_PLAIN = ("torch.autograd", "autograd", "accelerator", "self")
"""Names before `.backward(loss)` that are not the loss."""


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of one backward."""

    script: Script
    backward: cst.Call
    value: cst.BaseExpression
    parts: tuple[tuple[Script, cst.CSTNode], ...]
    """The expressions that make up the loss, in the order of the text."""


@lru_cache(maxsize=2)
def losses(training: Training) -> list[Loss]:
    """Return all losses of a program."""
    found = []
    for script, call in training.methods("backward"):
        value = loss_of(call)
        if value is not None and dotted(value) in _PLAIN and call.args:
            value = call.args[0].value
        if value is None or not training.used(script, call):
            continue
        parts = sorted(feeding(training, script, value), key=lambda part: part[0].order[part[1]])
        found.append(Loss(script, call, value, tuple(parts)))
    return found
