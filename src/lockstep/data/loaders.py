"""Two loaders behind one interface: requests in, batches on the device out, in the same order.

Data that fit live on the device as tensors and are indexed there. Everything else goes through
DataLoader workers with prefetch and pinned memory. A request names its samples and their epoch,
so what comes out never depends on which process asks, or on the number of workers.
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
    """Data that live on the device and are indexed there."""

    def __init__(self, data: Resident, device: torch.device, finish: Finish, watch: Watch) -> None:
        self.data, self.finish, self.watch = data.to(device), finish, watch
        self.index_device = device
        self.starved = 0.0

    def arrivals(self, requests: Iterable[Request]) -> Iterator[Arrival]:
        """Nothing but the request."""
        return (Arrival(request) for request in requests)

    def batch(self, arrival: Arrival, epoch: EpochKeys | None = None) -> Batch:
        """Index, finish."""
        inputs, targets = self.data.take(arrival.request.indices)
        self.watch.mark("read data")
        inputs = self.finish(inputs, arrival.request, epoch)
        self.watch.mark("pre-process")
        return inputs, targets

    def batches(self, requests: Iterable[Request]) -> Iterator[Batch]:
        """Index, finish, hand over."""
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
    """The loader for `data`: on the device if it fits (or `resident` says so), else workers."""
    if type(data) is TensorDataset and len(data.tensors) == 2:
        data = Tensors(*data.tensors)
    check_indexed(data)
    can = isinstance(data, Resident) and not isinstance(data, Tensor)
    if resident and not can:
        raise DataError(
            f"{type(data).__name__} cannot live on the device: it is no lockstep.Tensors, "
            "TensorDataset, or other data set with `take`. Leave out --resident."
        )
    if can and (resident or (resident is None and data.nbytes <= _room(device))):
        return ResidentLoader(data, device, finish, watch)
    return WorkerLoader(data, device, finish, watch, workers)


def _room(device: torch.device) -> float:
    """Bytes that data may take: a quarter of the free device memory; on the CPU they lie there."""
    if device.type != "cuda":
        return float("inf")
    free, _ = torch.cuda.mem_get_info(device)
    return free / 4
