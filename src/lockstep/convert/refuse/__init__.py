"""Reasons not to convert a script: data parallelism would change the method.

One reason per file: `look` finds the places where it holds, and finds none where it is not certain.
A new file here is a new reason. Its `ORDER` is its stage and its place within the stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from itertools import islice
from types import ModuleType

import libcst as cst

from lockstep.convert.discovery import modules_in_order
from lockstep.source.script import Script
from lockstep.source.training import Training


class Stage(IntEnum):
    """When a reason is tried: a stage follows only if the stages before it found nothing."""

    NO_DDP = 1
    """DDP has nothing to wrap here; one such reason is enough."""
    METHOD = 2
    """Data parallelism would change the method."""
    NO_TRAINING = 3
    """No training was found."""


@dataclass(frozen=True)
class Refusal:
    """A place where data parallelism would change the method."""

    script: Script
    node: cst.CSTNode
    reason: str
    """Why data parallelism would change the method here, in one sentence."""
    advice: str
    """What a person could do, in one sentence."""
    name: str = ""
    """Name of the reason: that of its file, which `refusals` fills in."""


@cache
def all_reasons() -> list[ModuleType]:
    """Return all reasons, in the order in which they are tried."""
    return modules_in_order(__name__)


def refusals(training: Training) -> list[Refusal]:
    """Return why a program cannot be converted, the first place of each reason; [] if it can.

    Programs that train on several replicas already, by themselves or with a framework, are not
    refused here.
    """
    if training.framework is not None or training.distributed:
        return []
    for stage in Stage:
        found = [
            replace(refusal, name=reason.__name__.rpartition(".")[2])
            for reason in all_reasons()
            if reason.ORDER[0] is stage
            for refusal in islice(reason.look(training), 1)
        ]
        if found:
            return found[:1] if stage is Stage.NO_DDP else found
    return []
