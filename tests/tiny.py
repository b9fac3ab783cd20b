"""A work that takes microseconds, and sides that run a function of the test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch.optim import SGD

from lockstep import models
from lockstep.bench.assignment import Assignment
from lockstep.bench.entries import Entry
from lockstep.bench.side import Side
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


def entry(name: str, run: Callable[[Assignment], None], replicas: int = 1) -> Entry:
    return Entry(name=name, side=Side(name=name, sentence=name, run=run), replicas=replicas)


def steps_for_ever(assignment: Assignment) -> None:
    while True:
        assignment.pace.step(assignment.work.batch)
