"""A reason not to convert a script, and where it shows."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from lockstep.source.script import Script


@dataclass(frozen=True)
class Refusal:
    """A place where data parallelism would change the method."""

    name: str
    """Of the reason; its file has the same name."""
    script: Script
    node: cst.CSTNode
    reason: str
    """Why it would change the method here, in one sentence."""
    advice: str
    """What a person could do, in one sentence."""
