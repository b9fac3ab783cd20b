"""A work that takes microseconds, and sides that do as they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch.optim import SGD

from lockstep import models
from lockstep.bench.assignment import Task
from lockstep.bench.sides import Entry, Side
from lockstep.bench.synthetic_data import images
from lockstep.bench.works import Work

TINY = Work(
    name="tiny",
    sentence="MLP 16-8-4, batch 8",
    model=partial(models.mlp, (16, 8, 4)),
    samples=partial(images, 64, (1, 4, 4), 4),
    batch=8,
    optimizer=partial(SGD, momentum=0.9),
    learning_rate=0.1,
)


@dataclass(frozen=True, kw_only=True)
class Told(Side):
    """A side that runs a function of the test."""

    act: Callable[[Task], None]

    def run(self, task: Task) -> None:
        self.act(task)


def told(name: str, act: Callable[[Task], None], replicas: int = 1) -> Entry:
    return Entry(
        name=name, side=Told(name=name, sentence=name, file="", act=act), replicas=replicas
    )


def steps_for_ever(task: Task) -> None:
    while True:
        task.pace.step(task.work.batch)
