"""The training loop. It fits on one page: the work is done in feed, step, exchange and record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.replica import Replica
from lockstep.engine.run.record import Record
from lockstep.engine.step.paths import StepPaths


def train(
    job: Job,
    group: Group,
    progress: Progress,
    record: Callable[[Job, Group, Progress], Record] = Record,
) -> dict[str, Any]:
    """Run `job` as one replica of `group`; return the summary that run.json holds."""
    with record(job, group, progress) as recorded:
        replica = Replica(job, group, progress)
        take = StepPaths(job, group, replica, recorded.meter, progress)
        start = recorded.begin(replica, take)
        for step, arrivals in replica.steps(start):
            taken = take(step, arrivals)
            replica.follow(step, arrivals)
            recorded.after(step, taken)
        return recorded.end()
