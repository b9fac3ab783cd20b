"""An assignment: all that a side gets to know, the same for every side of a bench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lockstep.bench.turns import Pace
from lockstep.bench.works import Work
from lockstep.data import Resident
from lockstep.engine.recipe.job import SpeedName
from lockstep.engine.recipe.recipe import PrecisionName
from lockstep.world import World, announce

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One replica of one side: train `work` on `samples`, and report every step to `pace`.

    A work says what is trained, a side says how, and an assignment joins them in one process.
    """

    work: Work
    samples: Resident
    world: World
    pace: Pace
    port: int
    """Port where the replicas meet, for sides that start as torchrun's processes do."""
    folder: Path
    """An empty folder that only this side uses."""
    precision: PrecisionName = "fp32"
    """Number format, for sides that can choose one."""
    speed: SpeedName = "auto"
    """How a step is executed, for lockstep's own sides."""

    @property
    def device(self) -> torch.device:
        """The device of this replica."""
        return torch.device(self.world.device)

    @property
    def on_gpu(self) -> bool:
        """Whether this replica computes on a GPU."""
        return self.device.type == "cuda"

    @property
    def alone(self) -> bool:
        """Whether there is no other replica."""
        return self.world.size == 1

    def announce(self) -> None:
        """Make this process look as if torchrun had started it."""
        announce(self.world, self.port)

    def set_up_torch(self) -> None:
        """Use one thread, and TF32 where the precision asks for it."""
        torch.set_num_threads(1)
        if self.precision == "tf32":
            torch.set_float32_matmul_precision("high")

    def loader(self, sampler: torch.utils.data.Sampler[int] | None = None) -> DataLoader[Batch]:
        """Return a DataLoader over the samples; without a sampler it shuffles."""
        workers = self.work.workers if self.on_gpu else 0
        dataset: Dataset[Batch] = self.samples  # type: ignore[assignment]  # has all that a data set needs
        return DataLoader(
            dataset,
            batch_size=self.work.batch,
            shuffle=sampler is None,
            sampler=sampler,
            drop_last=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=self.on_gpu,
        )


def forever(loader: DataLoader[Batch]) -> Iterator[Batch]:
    """Yield the batches of epoch after epoch."""
    while True:
        yield from loader


def shuffled(size: int, batch: int, device: torch.device) -> Iterator[Tensor]:
    """Yield the indices of one random batch after another, drawn on the device."""
    while True:
        order = torch.randperm(size, device=device)
        for first in range(0, size - batch + 1, batch):
            yield order[first : first + batch]
