"""Take the steps of a run, each on the path that was chosen for steps of its size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from lockstep.console import Progress
from lockstep.data import Arrival
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Step
from lockstep.engine.step.metrics import Meter
from lockstep.engine.step.path_search import PathSearch
from lockstep.engine.step.training_step import Taken, TrainingStep


class StepPaths:
    """Searches for a path for steps of one round, one for steps of two rounds, and so on."""

    def __init__(
        self, job: Job, group: Group, replica: Replica, meter: Meter, progress: Progress
    ) -> None:
        self.global_batch = job.recipe.global_batch
        self.eager = TrainingStep(replica, meter)
        self.of: dict[int, PathSearch] = {}
        self.taken: Counter[int] = Counter()
        self._begin: Callable[[], PathSearch] = partial(
            PathSearch, job, group, replica, meter, progress, self.eager
        )

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Take one step."""
        rounds = step.stride.rounds
        if step.samples != rounds * self.global_batch or step.stride.looks:
            # The last batch of an epoch has another shape; a step that measures must run at once.
            self.flush()
            return self.eager(step, arrivals)
        if rounds not in self.of:
            self.of[rounds] = self._begin()
        search = self.of[rounds]
        if len(self.of) > 1:
            for other in self.of.values():
                if other is not search:
                    # Steps that were put off come first.
                    other.flush()
        self.taken[rounds] += 1
        return search.path(step, arrivals) if search.settled else search(step, arrivals)

    def flush(self) -> None:
        """Take the steps that were put off. Call this before reading the state."""
        for search in self.of.values():
            search.flush()

    @property
    def chosen(self) -> str:
        """The name of the path, once it is chosen."""
        return next((s.pick.name for s in self.of.values() if s.settled), "")

    @property
    def peak_bytes(self) -> int:
        """Bytes that a step takes on its path, if the allocator does not count them."""
        return max((s.peak_bytes for s in self.of.values()), default=0)

    def summary(self) -> dict[str, Any]:
        """Return the path of most steps for run.json."""
        if not self.of:
            # The last batch of an epoch is always eager, even if it is the only one.
            return self._begin().summary()
        return self.of[self.taken.most_common(1)[0][0]].summary()
