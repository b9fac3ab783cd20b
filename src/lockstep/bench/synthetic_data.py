"""Training data of the works: made once before any side starts, and shared by all sides."""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.data import Resident, Tensors, Windows, synthetic


def images(samples: int, shape: tuple[int, int, int], classes: int) -> Tensors:
    """Return noisy images of clearly different classes, as two plain tensors."""
    made = synthetic(samples, 1, shape, classes).train
    return Tensors(*made.take(torch.arange(samples)))


def text(windows: int, length: int, vocabulary: int) -> Windows:
    """Return random tokens, small ones more often than large ones: a model can learn that much."""
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(windows * length + 1, generator=generator).pow_(3)
    return Windows(places.mul_(vocabulary).to(torch.int32), length)


class Repeated:
    """A data set repeated many times, as one long epoch.

    Enough large images for a long epoch would not fit into memory, and short epochs would measure
    how an epoch ends.
    """

    def __init__(self, samples: Resident, times: int) -> None:
        self.samples, self.times = samples, times

    def __len__(self) -> int:
        """Return the samples in an epoch."""
        return len(self.samples) * self.times

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one sample."""
        return self.samples[index % len(self.samples)]

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples of `indices`, stacked."""
        return self.samples.take(indices % len(self.samples))

    def to(self, device: torch.device) -> Repeated:
        """Return a copy on `device`."""
        return Repeated(self.samples.to(device), self.times)

    @property
    def nbytes(self) -> int:
        """Memory that the data need on the device."""
        return self.samples.nbytes
