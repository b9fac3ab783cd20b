"""One check per file, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lockstep.assess.checks import (
    every_sample,
    gradient,
    honest,
    order,
    replicas,
    saving,
    speed,
    start,
    target,
    validation,
)
from lockstep.assess.evidence import Evidence, Verdict, unjudged


@dataclass(frozen=True)
class Check:
    """Something that a submission must do."""

    name: str
    title: str
    judge: Callable[[Evidence], Verdict]


CHECKS = (
    Check("start", "It starts and ends", start.judge),
    Check("samples", "Each sample once per epoch", every_sample.judge),
    Check("order", "Another order in each epoch", order.judge),
    Check("replicas", "Replicas stay equal", replicas.judge),
    Check("gradient", "The gradient of one process", gradient.judge),
    Check("validation", "Exact validation", validation.judge),
    Check("saving", "One writer, plain weights", saving.judge),
    Check("target", "Target reached", target.judge),
    Check("speed", "Faster than one device", speed.judge),
    Check("honest", "No cheating", honest.judge),
)


def judged(evidence: Evidence) -> dict[str, Verdict]:
    """All of them. A program that did not come to its end shows nothing to the others."""
    found = {"start": CHECKS[0].judge(evidence)}
    for check in CHECKS[1:]:
        found[check.name] = (
            check.judge(evidence)
            if found["start"].passed
            else unjudged("not judged: the program must start and end first")
        )
    return found
