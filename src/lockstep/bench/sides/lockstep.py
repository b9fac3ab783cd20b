"""lockstep: the engine runs an ordinary recipe, as `lockstep train` does."""

from __future__ import annotations

from lockstep.bench.assignment import Assignment
from lockstep.bench.side import Side
from lockstep.bench.turns import Pace
from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.loop import train
from lockstep.engine.recipe.job import Job, Speed
from lockstep.engine.replica import Replica
from lockstep.engine.run.record import Record
from lockstep.engine.sampler import Step
from lockstep.engine.step.paths import StepPaths
from lockstep.engine.step.training_step import Taken


class Paced(Record):
    """The record of every run, which also reports each step to the pace."""

    def __init__(self, pace: Pace, job: Job, group: Group, progress: Progress) -> None:
        super().__init__(job, group, progress)
        self.pace = pace

    def begin(self, replica: Replica, paths: StepPaths) -> int:
        """Begin the record, and give the pace the model."""
        start = super().begin(replica, paths)
        self.pace.begin(replica.model.module)
        self.pace.facts = lambda: (self.peak_memory(), paths.chosen)
        return start

    def after(self, step: Step, taken: Taken) -> None:
        """Log the step, then count it. Steps that search for the fastest path count as set-up."""
        super().after(step, taken)
        if self.paths.chosen:
            self.pace.step(sum(sum(part.sizes) for part in step.parts))


def run(assignment: Assignment, exact: bool = False) -> None:
    """Train until the pace ends the run."""
    replicas = assignment.world.size
    job = Job(
        recipe=assignment.work.recipe(assignment.samples, replicas, assignment.precision),
        out=assignment.folder / "run",
        replicas=replicas,
        exact=exact,
        # Exact mode refuses `compile`, so it chooses its own way.
        speed=Speed.AUTO if exact else assignment.speed,
        checkpoint_every=0,
    )
    group = Group(assignment.world, store=str(assignment.folder / "store"))
    train(job, group, Progress(), lambda *given: Paced(assignment.pace, *given))


SIDE = Side(name="lockstep", sentence="lockstep, fast mode", run=run, order=1, shards=True)
