"""Data that are read by worker processes, ahead of the training, and copied beside it."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, cast

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate, get_worker_info

from lockstep.data.batches import Arrival, Batch, Finish, Request, Watch, check_pair
from lockstep.data.keyed import EpochKeys
from lockstep.errors import DataError, LockstepError
from lockstep.keys import key
from lockstep.world import die_with

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
    # A group of its own: a signal to all processes, as of Ctrl-C or `timeout`, means the replica,
    # which then wants to end in good order.
    os.setpgrp()


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
