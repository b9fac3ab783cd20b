"""Grades and tasks to make certificates of, without any run."""

from __future__ import annotations

import time
from typing import Any

from lockstep.assess.checks import CHECKS
from lockstep.assess.evidence import failed, passed
from lockstep.assess.exam import EXAMS
from lockstep.assess.grade import Grade
from lockstep.assess.starter import Task


def good(**changes: Any) -> Grade:
    """All checks passed."""
    facts = {"replicas": 2, "seed": 1, "accuracy": 0.991643, "gain": 1.713} | changes
    verdicts = {check.name: passed("as it should be") for check in CHECKS}
    return Grade(**{"exam": EXAMS["digits"], "verdicts": verdicts} | facts)


def poor(*names: str) -> Grade:
    """Some checks failed."""
    found = good()
    return good(verdicts=found.verdicts | {name: failed("it is not") for name in names})


def task(minutes_ago: float = 41, name: str = "") -> Task:
    """A task that was begun some time ago."""
    started = time.time() - 60 * minutes_ago
    return Task(data="digits", replicas=2, minutes=90, started=started, name=name)
