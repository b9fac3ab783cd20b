"""Real replicas and small recipes to run on them, for all tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from lockstep import data, models
from lockstep.cli import main
from lockstep.cluster.launch import launch
from lockstep.console import Console
from lockstep.data import Data, Tensors, pad_crop
from lockstep.engine.group import Group
from lockstep.engine.recipe.builtin import DIGITS
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.processes.replicas import run_replicas
from lockstep.world import World

torch.set_num_threads(1)


def on_replicas(number: int, work: Callable[[Group], Any]) -> list[Any]:
    """Run `work` on real processes over gloo; what each returned, by rank."""

    def replica(rank: int, store: str) -> Any:
        torch.set_num_threads(1)
        world = World(rank=rank, size=number, local_rank=rank)
        group = Group(world, store=store, timeout=60.0)
        try:
            return group.objects(work(group))
        finally:
            group.leave()

    return run_replicas(number, replica)


def world(number: int) -> Callable[[Callable[[Group], None]], Callable[[], None]]:
    """A test whose body runs on `number` replicas; it fails if it fails on any."""

    def decorate(test: Callable[[Group], None]) -> Callable[[], None]:
        @wraps(test)
        def run() -> None:
            on_replicas(number, test)

        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return decorate


_STORES = count()


class OnNccl(Group):
    """One replica that still exchanges: the only NCCL group that fits on one GPU."""

    def __init__(self, store: Path) -> None:
        super().__init__(World(device="cuda:0"))
        dist.init_process_group(
            "nccl",
            store=dist.FileStore(f"{store}-{next(_STORES)}", 1),
            rank=0,
            world_size=1,
            device_id=self.device,
        )
        self.alone, self.exchange_device = False, self.device


def train(recipe: Recipe, out: Path, replicas: int = 1, **options: Any) -> dict[str, Any]:
    """Train on real replicas of this machine."""
    options = {"checkpoint_every": 0, **options}
    job = Job(recipe=recipe, out=out, replicas=replicas, **options)
    return launch(job, device="cpu", console=Console(as_json=True))


def digits_subset(samples: int, test_samples: int = 40, double: bool = False) -> Data:
    """The first digits; in double precision if a test compares sums and not bits."""
    full = data.digits()
    prepare = full.prepare
    assert prepare is not None
    return Data(
        train=Tensors(full.train.inputs[:samples], full.train.targets[:samples]),
        test=Tensors(full.test.inputs[:test_samples], full.test.targets[:test_samples]),
        prepare=(lambda inputs: prepare(inputs).double()) if double else prepare,
    )


def small(samples: int = 100, **changes: Any) -> Recipe:
    """Digits made small: batch norm, dropout and augmentation on, an uneven last batch."""
    base = replace(
        DIGITS,
        model=partial(models.wideresnet, depth=10, width=1, channels=1, dropout=0.2),
        data=partial(digits_subset, samples),
        augment=(partial(pad_crop, padding=1),),
        global_batch=32,
        shards=4,
        epochs=2,
        learning_rate=0.05,
    )
    return replace(base, **changes)


def in_double(recipe: Recipe, samples: int = 100) -> Recipe:
    """The same recipe in double precision: what differs is then no rounding."""
    build = recipe.model
    return replace(
        recipe,
        model=lambda: build().double(),
        data=partial(digits_subset, samples, double=True),
        loss=lambda o, t: torch.nn.functional.cross_entropy(o, t, reduction="none"),
    )


def lockstep(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of a command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["lockstep", *arguments])
    try:
        main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    return 0
