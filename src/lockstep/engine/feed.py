"""The steps of one replica, each with its data."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from torch import Tensor

from lockstep.console import Progress
from lockstep.data import Arrival, Data, EpochKeys, Finish, Loader, Request, Watch, make_loader
from lockstep.data.batches import Batch
from lockstep.data.loaders import ResidentLoader
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.prepare import load_data, seed_all
from lockstep.engine.sampler import GlobalOrder, Step
from lockstep.engine.step.timeline import StepWatch
from lockstep.errors import DataError
from lockstep.keys import key
from lockstep.scaling.batch.growth import Stride, even_strides


def load_shared_data(job: Job, group: Group, progress: Progress) -> Data:
    """Load the data of a recipe, on one replica of each machine first."""
    recipe = job.recipe
    with group.first_on_machine():
        seed_all(key(recipe.seed, "data"))
        data = load_data(recipe, progress)
    if len(set(group.objects((len(data.train), len(data.test))))) > 1:
        raise DataError(
            f"the data of {recipe.name} have different sizes on different replicas: their "
            "function depends on something besides the seed."
        )
    return data


class Feed:
    """Reads data in the global order, and hands a replica its part of each step."""

    def __init__(self, job: Job, group: Group, data: Data, watch: StepWatch) -> None:
        recipe = job.recipe
        self.job, self.rank, self.watch = job, group.world.rank, watch
        self.classes: Any = getattr(data.train, "classes", None)
        """The classes of the data (names, or a number), if they have any."""
        finish = Finish(recipe.seed, recipe.augment, data.prepare, recipe.channels_last)
        plain = Finish(recipe.seed, (), data.prepare, recipe.channels_last)
        load = partial(make_loader, device=group.device, workers=job.workers, resident=job.resident)
        self.loader: Loader = load(data.train, finish=finish, watch=watch)
        # To read a sample once more, beside workers that read ahead and beside a timeline.
        resident = self.loader.data if isinstance(self.loader, ResidentLoader) else None
        self.second_loader: Loader = make_loader(
            data.train if resident is None else resident,
            device=group.device,
            finish=finish,
            watch=Watch(),
            resident=resident is not None,
        )
        self.test_loader: Loader = load(data.test, finish=plain, watch=Watch())
        self.epoch = EpochKeys(recipe.seed, group.device)
        self.samples, self.test_samples = len(data.train), len(data.test)
        self.order = GlobalOrder(len(data.train), recipe.global_batch, recipe.seed)
        self.growth = recipe.growth(len(data.train))
        """What decides how many batches a step takes; None if every step takes one."""
        self.most_rounds = 1 if self.growth is None else self.growth.most
        """The most batches that a step takes."""
        self.rounds_per_epoch = self.order.rounds_per_epoch
        """Batches in an epoch."""
        self.planned = recipe.epochs * self.rounds_per_epoch
        """Steps of one batch that the run is worth."""

    def strides(self, start: int) -> Iterator[Stride]:
        """Yield the place of each step in the run, from step number `start` on."""
        return (
            even_strides(self.planned, start) if self.growth is None else self.growth.strides(start)
        )

    def is_over(self, done: int) -> bool:
        """Tell whether no step is left after `done` steps."""
        most = self.job.max_steps
        limited = most is not None and done >= most
        return limited or next(self.strides(done), None) is None

    def steps_left(self, step: Step) -> int:
        """Return how many steps are left from `step` on, if all are like it."""
        ahead = (1.0 - step.stride.progress) * self.planned / step.stride.gain + 0.5
        most = self.job.max_steps
        return round(ahead if most is None else min(ahead, most - step.number))

    def steps(self, start: int) -> Iterator[tuple[Step, list[Arrival]]]:
        """Yield each step from `start` on, with what arrived for its parts."""
        # Loaders read ahead: keep the steps whose data are on their way.
        on_the_way: deque[Step] = deque()
        last = self.job.max_steps
        strides = self.strides(start)
        if last is not None:
            strides = islice(strides, max(0, last - start))

        def requests() -> Iterator[Request]:
            for step in self.order.steps(
                self.job.plan,
                self.rank,
                strides,
                self.loader.index_device,
                together=not self.job.exact and self.job.micro_batch is None,
            ):
                on_the_way.append(step)
                for part in step.parts:
                    yield part.request

        arrivals = self.loader.arrivals(requests())
        over = self.is_over(start)
        while not over:
            self.watch.begin()
            first = next(arrivals)
            step = on_the_way.popleft()
            if step.number + 1 == last:
                step = step._replace(stride=step.stride._replace(last=True))
            over = step.stride.last
            yield step, [first, *islice(arrivals, len(step.parts) - 1)]

    def turn_to(self, step: Step) -> None:
        """Draw the random numbers of augmentation for the epoch of `step`."""
        self.epoch.turn_to(step.epoch)

    def read(self, arrival: Arrival) -> Batch:
        """Return inputs and targets as the model sees them."""
        return self.loader.batch(arrival, self.epoch)

    def read_again(self, epoch: int, samples: Tensor) -> Batch:
        """Return inputs and targets of any samples, beside the training."""
        arrival = next(iter(self.second_loader.arrivals([Request(epoch, samples)])))
        return self.second_loader.batch(arrival, self.epoch)

    @property
    def starved(self) -> float:
        """Seconds that the model has waited for data."""
        return self.loader.starved
