"""What passes between loaders and the training: requests, what arrives for them, batches."""

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
    """Told what the time went into; this one does not listen."""

    def mark(self, part: str) -> None:
        """The time since the last mark went into `part`."""

    def span(self, part: str, start: float, end: float) -> None:
        """Something else spent `start` to `end` on `part`, beside this process."""


class Arrival(NamedTuple):
    """What a request needs from outside the device, now that it is there."""

    request: Request
    samples: Batch | None = None
    """Inputs and targets as they were read; None if they live on the device already."""

    def tensors(self) -> list[Tensor]:
        """Everything that changes from one arrival to the next."""
        return [*(self.samples or ()), self.request.indices]

    def copy(self) -> Arrival:
        """The same in memory of its own."""
        samples = self.samples and (self.samples[0].clone(), self.samples[1].clone())
        return Arrival(self.request._replace(indices=self.request.indices.clone()), samples)


class Loader(Protocol):
    """Requests in, batches out."""

    index_device: torch.device
    """Where the requests' indices should lie."""
    finish: Finish
    starved: float
    """Seconds that the model has waited for data because they were not there."""

    def arrivals(self, requests: Iterable[Request]) -> Iterator[Arrival]:
        """What each request needs, in the same order, on the device."""
        ...

    def batch(self, arrival: Arrival, epoch: EpochKeys | None = None) -> Batch:
        """Inputs and targets as the model sees them: work for the device alone."""
        ...

    def batches(self, requests: Iterable[Request]) -> Iterator[Batch]:
        """Both in one."""
        ...


class Finish:
    """The last two steps of loading, on the device: augment, then prepare."""

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
        """The inputs as the model sees them; `epoch` replaces the number of the request."""
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
    """The same images with channels as the innermost axis.

    With one channel both layouts are the same memory, and only the strides tell a convolution which
    one it should hand on: `contiguous` leaves them as they are. Through one dimension they become
    those of the layout.
    """
    moved = images.permute(0, 2, 3, 1)
    return moved.reshape(-1).view(moved.shape).permute(0, 3, 1, 2)


def check_indexed(data: Any) -> None:
    """Refuse what has no length or no index."""
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
            "(input, target). Wrap the data set so that its __getitem__ returns such a pair."
        )
