"""The evidence about a submission, and the verdict of a check on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from lockstep.assess.dealt_data import Samples
from lockstep.assess.exam import Exam
from lockstep.assess.observed_run import Watched
from lockstep.assess.recount import Recount
from lockstep.assess.supervise import RunResult
from lockstep.assess.timing import Times

PRINTED = re.compile(r"epoch (\d+) accuracy (\d\.\d{4})")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict of one check."""

    passed: bool | None
    """Whether the check passed; None if there was nothing to judge."""
    reason: str
    details: tuple[str, ...] = ()
    """Lines that help to find the mistake."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A run of the submission, its files and its times."""

    exam: Exam
    replicas: int
    samples: Samples
    result: RunResult
    watched: Watched
    recounts: dict[int, Recount] = field(default_factory=dict)
    """The weights of each epoch."""
    untrained: Recount | None = None
    """The weights before the first step."""
    mended: list[str] = field(default_factory=list)
    """Changes to the learner's folder during the grading."""
    times: Times | None = None

    @property
    def epochs(self) -> range:
        """The numbers of the epochs, from 1."""
        return range(1, self.exam.epochs + 1)

    def printed(self, epoch: int) -> list[tuple[int, str]]:
        """Return (rank, number) for each line that prints the accuracy of an epoch."""
        found = []
        for rank, lines in enumerate(self.result.lines):
            for line in lines:
                match = PRINTED.fullmatch(line.strip())
                if match is not None and int(match[1]) == epoch:
                    found.append((rank, match[2]))
        return found


@dataclass(frozen=True, kw_only=True)
class Check:
    """Something that a submission must do. Each file in `checks/` holds one."""

    place: int
    """Its place in the list that a learner reads."""
    name: str
    title: str
    judge: Callable[[Evidence], Verdict]


def passed(reason: str) -> Verdict:
    """Return the verdict of a check that passes."""
    return Verdict(passed=True, reason=reason)


def failed(reason: str, *details: str) -> Verdict:
    """Return the verdict of a check that fails, with the reason."""
    return Verdict(passed=False, reason=reason, details=details)


def unjudged(reason: str) -> Verdict:
    """Return the verdict of a check that could not be judged."""
    return Verdict(passed=None, reason=reason)
