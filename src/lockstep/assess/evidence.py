"""All that is known of a submission when it is judged, and what a check says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lockstep.assess.dealt_data import Samples
from lockstep.assess.exam import Exam
from lockstep.assess.observed_run import Watched
from lockstep.assess.recount import Recount
from lockstep.assess.supervise import Sat
from lockstep.assess.timing import Times

PRINTED = re.compile(r"epoch (\d+) accuracy (\d\.\d{4})")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Of one check."""

    passed: bool | None
    """None: there was nothing to judge."""
    reason: str
    details: tuple[str, ...] = ()
    """Lines that help to find it."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A run, its files and its times."""

    exam: Exam
    replicas: int
    samples: Samples
    sat: Sat
    watched: Watched
    recounts: dict[int, Recount] = field(default_factory=dict)
    """The weights of each epoch."""
    untrained: Recount | None = None
    """The weights before the first step."""
    mended: list[str] = field(default_factory=list)
    """What was done to the learner's folder."""
    times: Times | None = None

    @property
    def epochs(self) -> range:
        """Their numbers."""
        return range(1, self.exam.epochs + 1)

    def printed(self, epoch: int) -> list[tuple[int, str]]:
        """(rank, number) of each line that says an epoch's accuracy."""
        found = []
        for rank, lines in enumerate(self.sat.lines):
            for line in lines:
                match = PRINTED.fullmatch(line.strip())
                if match is not None and int(match[1]) == epoch:
                    found.append((rank, match[2]))
        return found


def passed(reason: str) -> Verdict:
    """It is as it should be."""
    return Verdict(passed=True, reason=reason)


def failed(reason: str, *details: str) -> Verdict:
    """It is not, and why."""
    return Verdict(passed=False, reason=reason, details=details)


def unjudged(reason: str) -> Verdict:
    """Nobody can say."""
    return Verdict(passed=None, reason=reason)


def described(verdict: Verdict) -> dict[str, Any]:
    """For --json and the history."""
    return {
        "passed": verdict.passed,
        "reason": verdict.reason,
        "details": list(verdict.details),
    }
