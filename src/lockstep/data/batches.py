"""The requests, arrivals and batches that loaders and training exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from lockstep.data.keyed import EpochKeys, SampleKeys
from lockstep.errors import DataError

Augment = Callable[[Tensor, SampleKeys], Tensor]
Batch = tuple[Tensor, Tensor]


class Request(NamedTuple):
    """The samples of one batch, in order."""

    epoch: int
    indices: Tensor


class Watch:
    """Records where the time goes; this base class ignores it."""

    def mark(self, part: str) -> None:
        """Record that the time since the last mark went into `part`."""

    def span(self, part: str, start: float, end: float) -> None:
        """Record that another process spent `start` to `end` on `part`."""


class Arrival(NamedTuple):
    """A request and the samples for it that have arrived on the device."""

    request: Request
    samples: Batch | None = None
    """Inputs and targets as read; None if the data live on the device already."""

    def tensors(self) -> list[Tensor]:
        """Return every tensor that changes from one arrival to the next."""
        return [*(self.samples or ()), self.request.indices]

    def copy(self) -> Arrival:
        """Return a copy that shares no memory with this arrival."""
        samples = self.samples and (self.samples[0].clone(), self.samples[1].clone())
        return Arrival(self.request._replace(indices=self.request.indices.clone()), samples)


class Loader(Protocol):
    """Turns requests into batches."""

    data: Any
    """The data set."""
    index_device: torch.device
    """The device on which the indices of requests should lie."""
    finish: Finish
    starved: float
    """How long the model has waited for data that had not arrived, in seconds."""

    def arrivals(self, requests: Iterable[Request]) -> Iterator[Arrival]:
        """Yield the arrival for each request, in order, on the device."""
        ...

    def batch(self, arrival: Arrival, epoch: EpochKeys | None = None) -> Batch:
        """Return inputs and targets as the model sees them; only the device works."""
        ...

    def batches(self, requests: Iterable[Request]) -> Iterator[Batch]:
        """Yield the finished batch for each request, in order."""
        ...


class Finish:
    """Does the last two steps of loading, on the device: augment, then prepare."""

    def __init__(
        self,
        seed: int = 0,
        augment: Sequence[Augment] = (),
        prepare: Callable[[Tensor], Tensor] | None = None,
        channels_last: bool = False,
    ) -> None:
        self.seed, self.augment, self.prepare = seed, augment, prepare
        self.channels_last = channels_last

    def __call__(self, inputs: Tensor, request: Request, epoch: EpochKeys | None = None) -> Tensor:
        """Return the inputs as the model sees them; `epoch` replaces that of the request."""
        if self.augment:
            keys = SampleKeys(self.seed, epoch or request.epoch, request.indices)
            for function in self.augment:
                inputs = function(inputs, keys)
        if self.prepare is not None:
            inputs = self.prepare(inputs)
        if self.channels_last and inputs.dim() == 4:
            return in_channels_last(inputs)
        if not self.augment and self.prepare is None:
            return inputs
        return inputs.reshape(-1).view(inputs.shape)


def in_channels_last(images: Tensor) -> Tensor:
    """Return the images with channels as the innermost axis.

    With one channel both layouts have the same memory, and a convolution sees only from the strides
    which layout to return. `contiguous` leaves such strides as they are; a view through one
    dimension sets them.
    """
    moved = images.permute(0, 2, 3, 1)
    return moved.reshape(-1).view(moved.shape).permute(0, 3, 1, 2)


def check_indexed(data: Any) -> None:
    """Refuse a data set without a length or an index."""
    indexed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if not indexed or isinstance(data, IterableDataset):
        raise DataError(
            f"{type(data).__name__} has no length or no index. lockstep decides the order of the "
            "samples itself, so it needs a map-style data set (with __len__ and __getitem__)."
        )


def check_pair(sample: Any) -> None:
    """Refuse a data set whose samples are not (input, target)."""
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise DataError(
            f"a sample of the data set is {type(sample).__name__}: lockstep needs pairs of "
            "(input, target). Wrap the data set so that its __getitem__ returns such a pair, or "
            "give the recipe a collate function, which takes samples of any structure."
        )
