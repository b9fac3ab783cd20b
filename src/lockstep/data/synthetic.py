"""Make data from a formula: images of any size for measurements, and a line for first steps."""

from __future__ import annotations

import copy
import math
from typing import Self

import torch
from torch import Tensor

from lockstep.data.dataset import Data, Tensors
from lockstep.data.keyed import SampleKeys
from lockstep.errors import DataError

TABLE_SIZE = 1 << 20
COARSE = 4
# Number the test samples from here on, so that they do not change with the training samples.
FIRST_TEST = 1 << 31


def synthetic(
    samples: int = 1280,
    test_samples: int = 256,
    shape: tuple[int, int, int] = (3, 224, 224),
    classes: int = 1000,
    seed: int = 0,
) -> Data:
    """Make noisy images of classes that a model can learn, on the device and on demand."""
    return Data(
        train=Synthetic(samples, shape, classes, seed),
        test=Synthetic(test_samples, shape, classes, seed, first=FIRST_TEST),
    )


class Synthetic:
    """Float32 images: uniform noise in [-1, 1) on a coarse pattern in [-1/2, 1/2) of the class.

    An image follows from (seed, index) through exact numbers and one rounded sum, so its bits are
    the same on every device. A hash for each pixel would cost more than the training step, so the
    noise is a stretch of one table, from a place keyed by the index.
    """

    def __init__(
        self, samples: int, shape: tuple[int, int, int], classes: int, seed: int, first: int = 0
    ) -> None:
        """Describe `samples` images, numbered from `first` on."""
        if len(shape) != 3 or min(samples, *shape, classes) < 1:
            raise DataError(
                f"samples={samples}, shape={tuple(shape)}, classes={classes} describe no images: "
                "all are 1 or more, such as samples=1280, shape=(3, 224, 224), classes=1000."
            )
        self.samples, self.shape, self.classes = samples, shape, classes
        self.seed, self.first = seed, first
        channels, height, width = shape
        elements = torch.arange(TABLE_SIZE + math.prod(shape) - 1)
        self._table = self._keys(elements).uniform("noise") * 2 - 1
        cells = torch.arange(classes * channels * COARSE * COARSE)
        pattern = self._keys(cells).uniform("pattern") - 0.5
        self._pattern = pattern.view(classes, channels, COARSE, COARSE)
        self._rows = torch.arange(height)[:, None] * COARSE // height
        self._columns = torch.arange(width) * COARSE // width

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return one sample."""
        if not 0 <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        inputs, targets = self.take(torch.tensor([index], device=self._table.device))
        return inputs[0], targets[0]

    def take(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Make the samples of `indices` on the device of the table."""
        keys = self._keys(indices.long() + self.first)
        targets = keys.integers("class", self.classes)
        places = keys.integers("place", TABLE_SIZE)
        # A view of every stretch of the table; the index copies only those of this batch.
        noise = self._table.unfold(0, math.prod(self.shape), 1)[places]
        pattern = self._pattern[targets][:, :, self._rows, self._columns]
        return pattern.add_(noise.view_as(pattern)), targets

    def to(self, device: torch.device) -> Self:
        """Return the data on `device`."""
        moved = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(moved, name, value.to(device))
        return moved

    @property
    def nbytes(self) -> int:
        """Bytes that the data need on the device."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, Tensor))

    def _keys(self, numbers: Tensor) -> SampleKeys:
        return SampleKeys(self.seed, 0, numbers)


def line(
    samples: int = 100, w: float = 10.0, b: float = 2.0, noise: float = 1.0, seed: int = 0
) -> Data:
    """Make points near y = w x + b, x in [-1, 1), with noise; test on 100 exact points."""
    if samples < 1:
        raise DataError(f"samples={samples}: give 1 or more, such as 100.")
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(samples, 1, generator=generator) * 2 - 1
    y = w * x + b + noise * torch.randn(samples, 1, generator=generator)
    grid = torch.linspace(-1, 1, 100)[:, None]
    return Data(train=Tensors(x, y), test=Tensors(grid, w * grid + b))
