"""lockstep: the engine as `lockstep train` runs it, from an ordinary recipe."""

from __future__ import annotations

from lockstep.bench.assignment import Task
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
    """A record that also tells the pace of every step: nothing is left out or added."""

    def __init__(self, pace: Pace, job: Job, group: Group, progress: Progress) -> None:
        super().__init__(job, group, progress)
        self.pace = pace

    def begin(self, replica: Replica, paths: StepPaths) -> int:
        """Show the pace the model."""
        start = super().begin(replica, paths)
        self.pace.begin(replica.model.module)
        self.pace.told = lambda: (self.peak_memory(), paths.chosen)
        return start

    def after(self, step: Step, taken: Taken) -> None:
        """Log as always, then count the step; those that search for the fastest path are set-up."""
        super().after(step, taken)
        if self.paths.chosen:
            self.pace.step(sum(sum(part.sizes) for part in step.parts))


def run(task: Task, exact: bool = False) -> None:
    """Train until the pace ends it."""
    job = Job(
        recipe=task.work.recipe(task.samples, task.world.size, task.precision),
        out=task.folder / "run",
        replicas=task.world.size,
        exact=exact,
        # Exact mode is not compiled; it finds its own best.
        speed=Speed.AUTO if exact else task.speed,
        checkpoint_every=0,
    )
    group = Group(task.world, store=str(task.folder / "store"))
    train(job, group, Progress(), lambda *given: Paced(task.pace, *given))


def run_exact(task: Task) -> None:
    """The same in exact mode."""
    run(task, exact=True)
