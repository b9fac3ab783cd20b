"""A reason not to convert a script, and where it shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import libcst as cst

from lockstep.source.script import Script


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
