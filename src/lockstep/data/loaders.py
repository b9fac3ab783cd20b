"""Two loaders behind one interface: requests in, batches on the device out, in the same order.

Data that fit live on the device as tensors and are indexed there. Everything else goes through
DataLoader workers with prefetch and pinned memory. A request names its samples and their epoch,
so what comes out never depends on which process asks, or on the number of workers.
"""

from __future__ import annotations

import os
import random
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import numpy
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    TensorDataset,
    default_collate,
    get_worker_info,
)

from lockstep.data.dataset import Resident, Tensors
from lockstep.data.keyed import EpochKeys, SampleKeys
from lockstep.errors import DataError, LockstepError
from lockstep.keys import key
from lockstep.world import die_with

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


AHEAD = 2
"""Steps that the host may be ahead of a GPU: enough to keep it busy, few enough for its memory."""


class WorkerLoader:
    """Any map-style data set, read by worker processes ahead of the training."""

    def __init__(
        self, data: Any, device: torch.device, finish: Finish, watch: Watch, workers: int
    ) -> None:
        self.data, self.device, self.finish, self.watch = data, device, finish, watch
        self.workers = workers
        self.index_device = torch.device("cpu")
        self.starved = 0.0

    def arrivals(self, requests: Iterable[Request]) -> Iterator[Arrival]:
        """Read in the workers, move to the device.

        The workers are forked now, not at the first batch: call this before the first backward
        pass. Later, threads of the backends take locks that a forked process would never see
        released.
        """
        # How many workers there are is the user's business.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        # The sampler runs ahead of the batches that come back: keep the requests on their way.
        on_the_way: deque[Request] = deque()
        # DataLoader's own types know neither batches read at once nor keys as indices.
        loader: Any = DataLoader(
            cast(Any, _Keyed(self.data, self.finish.seed)),
            batch_sampler=cast(Any, _Forwarder(requests, on_the_way)),
            num_workers=self.workers,
            collate_fn=cast(Any, _collate),
            worker_init_fn=partial(_start_worker, os.getpid()),
            pin_memory=self.device.type == "cuda",
            # Else DataLoader would draw from the generator of the training.
            generator=torch.Generator(),
        )
        return self._arriving(iter(loader), on_the_way)

    def _arriving(self, read: Iterator[Any], on_the_way: deque[Request]) -> Iterator[Arrival]:
        mover = _Mover(self.device)
        first = True
        while True:
            asked = time.perf_counter()
            batch = next(read, None)
            if batch is None:
                return
            if isinstance(batch, LockstepError):
                # Its workers end with it, not with the trace of the error, which holds this frame.
                del read
                raise batch
            inputs, targets, stamps = batch
            arrived = time.perf_counter()
            # The first batch waits for the workers to start; with work in its queue a GPU does not
            # notice that the host is waiting.
            if not first and mover.idle():
                self.starved += arrived - asked
            first = False
            self.watch.mark("queue")
            self.watch.span("read data", stamps[0], stamps[1])
            self.watch.span("transport", stamps[1], min(stamps[2], arrived))
            request = on_the_way.popleft()
            inputs, targets, indices = mover.move(inputs, targets, request.indices)
            self.watch.mark("transport to the device")
            yield Arrival(request._replace(indices=indices), (inputs, targets))
            mover.step_launched()

    def batch(self, arrival: Arrival, epoch: EpochKeys | None = None) -> Batch:
        """Finish what has arrived."""
        assert arrival.samples is not None
        inputs, targets = arrival.samples
        inputs = self.finish(inputs, arrival.request, epoch)
        self.watch.mark("pre-process")
        return inputs, targets

    def batches(self, requests: Iterable[Request]) -> Iterator[Batch]:
        """Read in the workers, move to the device, finish there."""
        return (self.batch(arrival) for arrival in self.arrivals(requests))


class _Mover:
    """Copies on a stream of their own: the next batch moves to the device while this one trains."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.launched: deque[torch.cuda.Event] = deque()

    def move(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors on the device."""
        if self.stream is None:
            return tensors
        current = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self.stream):
            moved = tuple(t.to(self.device, non_blocking=True) for t in tensors)
        current.wait_stream(self.stream)
        for tensor in moved:
            # Their memory may be used again only when the training is done with it.
            tensor.record_stream(current)
        return moved

    def step_launched(self) -> None:
        """The work on the last batch is in the queue: wait until only a few steps are."""
        if self.stream is None:
            return
        self.launched.append(torch.cuda.current_stream(self.device).record_event())
        if len(self.launched) > AHEAD:
            self.launched.popleft().synchronize()

    def idle(self) -> bool:
        """Whether the device has done all that it was given."""
        return all(event.query() for event in self.launched)


class _Forwarder:
    """The requests as DataLoader wants them: lists of keys; each is also put `on_the_way`."""

    def __init__(self, requests: Iterable[Request], on_the_way: deque[Request]) -> None:
        self.requests, self.on_the_way = requests, on_the_way

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for request in self.requests:
            self.on_the_way.append(request)
            yield [(request.epoch, index) for index in request.indices.tolist()]


Read = tuple[float, list[Any] | LockstepError]
"""When reading began, and the samples."""


class _Keyed:
    """A data set whose own randomness is keyed per sample, whichever generator it uses."""

    def __init__(self, data: Any, seed: int) -> None:
        self.data, self.seed = data, seed

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Read:
        start = time.perf_counter()
        if get_worker_info() is not None:
            return start, self._read(keys)
        # Without workers this is the training process: leave its generators as they were.
        states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
        try:
            return start, self._read(keys)
        finally:
            random.setstate(states[0])
            numpy.random.set_state(states[1])
            torch.set_rng_state(states[2])

    def _read(self, keys: list[tuple[int, int]]) -> list[Any] | LockstepError:
        try:
            return self._samples(keys)
        except LockstepError as error:
            # Raised where it is received: out of a worker it would come wrapped in its trace.
            return error

    def _samples(self, keys: list[tuple[int, int]]) -> list[Any]:
        samples = []
        for epoch, index in keys:
            number = key(self.seed, epoch, index, "sample")
            random.seed(number)
            numpy.random.seed(number & 0xFFFFFFFF)
            # Not torch.manual_seed: before CUDA is used, it notes a stack trace at every call.
            torch.default_generator.manual_seed(number)
            samples.append(self.data[index])
        return samples


def _collate(read: Read) -> tuple[Tensor, Tensor, tuple[float, float, float]] | LockstepError:
    start, samples = read
    if isinstance(samples, LockstepError):
        return samples
    end = time.perf_counter()
    check_pair(samples[0])
    inputs, targets = default_collate(samples)
    for value in (inputs, targets):
        if not isinstance(value, Tensor):
            raise DataError(
                f"inputs or targets of the data set make no tensor but a {type(value).__name__}. "
                "Have its __getitem__ return two tensors."
            )
    return inputs, targets, (start, end, time.perf_counter())


def _start_worker(parent: int, number: int) -> None:
    die_with(parent)


def loader_limits(starved: float, seconds: float, samples: float, workers: int) -> str | None:
    """What to say if a model waited `starved` of some `seconds` for data, or None if it is little.

    `samples` are those that one replica trained on meanwhile.
    """
    if seconds < 5.0 or starved < 0.15 * seconds:
        return None
    rate, possible = samples / seconds, samples / max(seconds - starved, 1e-3 * seconds)
    return (
        f"the loader is the limit: the model waits for data {starved / seconds:.0%} of the time. "
        f"{workers} workers read {rate:,.0f} samples/s for each replica; the model could take "
        f"{possible:,.0f}. Try --workers {max(2, 2 * workers)}, smaller images, or data that fit "
        "on the device."
    )


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
