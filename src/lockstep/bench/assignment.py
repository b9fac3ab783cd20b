"""What a side is told: the same for every side of a bench."""

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
class Task:
    """Train `work` on `samples` as one of several replicas, and tell `pace` of every step."""

    work: Work
    samples: Resident
    world: World
    pace: Pace
    port: int
    """Where the replicas meet, for those who meet as torchrun's processes do."""
    folder: Path
    """Exists, is empty, and is the side's own."""
    precision: PrecisionName = "fp32"
    """For the sides that can choose it."""
    speed: SpeedName = "auto"
    """Passed on to lockstep's own sides."""

    @property
    def device(self) -> torch.device:
        """Where this replica computes."""
        return torch.device(self.world.device)

    @property
    def on_gpu(self) -> bool:
        """Whether that is a GPU."""
        return self.device.type == "cuda"

    @property
    def alone(self) -> bool:
        """Whether there is no other replica."""
        return self.world.size == 1

    def announce(self) -> None:
        """Make this process look as if torchrun had started it."""
        announce(self.world, self.port)

    def loader(self, sampler: torch.utils.data.Sampler[int] | None = None) -> DataLoader[Batch]:
        """The DataLoader of the sides that use one; without a sampler it shuffles."""
        workers = self.work.workers if self.on_gpu else 0
        dataset: Dataset[Batch] = self.samples  # type: ignore[assignment]  # it has all it takes
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
    """Epoch after epoch."""
    while True:
        yield from loader


def shuffled(size: int, batch: int, device: torch.device) -> Iterator[Tensor]:
    """The indices of one batch after another, drawn and kept on the device."""
    while True:
        order = torch.randperm(size, device=device)
        for first in range(0, size - batch + 1, batch):
            yield order[first : first + batch]
