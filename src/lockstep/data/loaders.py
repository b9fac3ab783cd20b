"""Turn requests into batches on the device, in order, with one of two loaders.

Data that fit live on the device as tensors and are indexed there. DataLoader workers read all other
data ahead, into pinned memory. A request names its samples and their epoch, so the batches depend
neither on the process that asks nor on the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from lockstep.data.batches import Arrival, Batch, Finish, Loader, Request, Watch, check_indexed
from lockstep.data.dataset import Resident, Tensors
from lockstep.data.keyed import EpochKeys
from lockstep.data.workers import WorkerLoader
from lockstep.errors import DataError


class ResidentLoader:
    """Takes batches from data that live on the device."""

    def __init__(self, data: Resident, device: torch.device, finish: Finish, watch: Watch) -> None:
        self.data, self.finish, self.watch = data.to(device), finish, watch
        self.index_device = device
        self.starved = 0.0

    def arrivals(self, requests: Iterable[Request]) -> Iterator[Arrival]:
        """Yield the requests: the samples are on the device already."""
        return (Arrival(request) for request in requests)

    def batch(self, arrival: Arrival, epoch: EpochKeys | None = None) -> Batch:
        """Take the samples of a request and finish them."""
        inputs, targets = self.data.take(arrival.request.indices)
        self.watch.mark("read data")
        inputs = self.finish(inputs, arrival.request, epoch)
        self.watch.mark("pre-process")
        return inputs, targets

    def batches(self, requests: Iterable[Request]) -> Iterator[Batch]:
        """Yield the finished batch for each request."""
        return (self.batch(arrival) for arrival in self.arrivals(requests))


def make_loader(
    data: Any,
    device: torch.device,
    finish: Finish,
    *,
    watch: Watch,
    workers: int = 0,
    resident: bool | None = None,
) -> Loader:
    """Make a loader for `data`: on the device if it fits or `resident` is set, else workers."""
    if type(data) is TensorDataset and len(data.tensors) == 2:
        data = Tensors(*data.tensors)
    check_indexed(data)
    can = isinstance(data, Resident) and not isinstance(data, Tensor)
    if resident and not can:
        raise DataError(
            f"{type(data).__name__} cannot live on the device: that needs lockstep.Tensors, "
            "TensorDataset, or another data set with `take`. Leave out --resident."
        )
    if can and (resident or (resident is None and data.nbytes <= _room(device))):
        return ResidentLoader(data, device, finish, watch)
    return WorkerLoader(data, device, finish, watch, workers)


def _room(device: torch.device) -> float:
    """Return the bytes that data may take: a quarter of the free GPU memory, any on the CPU."""
    if device.type != "cuda":
        return float("inf")
    free, _ = torch.cuda.mem_get_info(device)
    return free / 4
