"""What the works train on: samples made once, before any side starts, and shared by all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.data import Resident, Tensors, Windows, synthetic


def images(samples: int, shape: tuple[int, int, int], classes: int) -> Tensors:
    """Noisy images that can be told apart, as two plain tensors."""
    made = synthetic(samples, 1, shape, classes).train
    return Tensors(*made.take(torch.arange(samples)))


def text(windows: int, length: int, vocabulary: int) -> Windows:
    """Random tokens, small numbers more often than large ones: a model can learn that much."""
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(windows * length + 1, generator=generator).pow_(3)
    return Windows(places.mul_(vocabulary).to(torch.int32), length)


class Repeated:
    """The same samples over and over, as one long epoch.

    Large images would fill the memory before an epoch is long; and a short one would measure how
    an epoch ends.
    """

    def __init__(self, samples: Resident, times: int) -> None:
        self.samples, self.times = samples, times

    def __len__(self) -> int:
        """Samples in an epoch."""
        return len(self.samples) * self.times

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """One sample."""
        return self.samples[index % len(self.samples)]

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The samples of `indices`, stacked."""
        return self.samples.take(indices % len(self.samples))

    def to(self, device: torch.device) -> Repeated:
        """The same data on `device`."""
        return Repeated(self.samples.to(device), self.times)

    @property
    def nbytes(self) -> int:
        """Memory that it needs on the device."""
        return self.samples.nbytes
