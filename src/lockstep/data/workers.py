"""Read data in worker processes ahead of the training, and copy them while it runs."""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate, get_worker_info

from lockstep.data.batches import Arrival, Batch, Finish, Request, Watch, check_pair
from lockstep.data.keyed import (
    EpochKeys,
    generator_states,
    restore_generators,
    seed_generators,
)
from lockstep.errors import DataError, LockstepError, raised
from lockstep.keys import key
from lockstep.processes.data_worker import WorkerContext
from lockstep.world import die_with

AHEAD = 2
"""Steps that the host may be ahead of a GPU: they keep it busy and fit into its memory."""


class WorkerLoader:
    """Reads any map-style data set in worker processes, ahead of the training."""

    def __init__(
        self, data: Any, device: torch.device, finish: Finish, watch: Watch, workers: int
    ) -> None:
        self.data, self.device, self.finish, self.watch = data, device, finish, watch
        self.workers = workers
        self.index_device = torch.device("cpu")
        self.starved = 0.0

    def arrivals(self, requests: Iterable[Request]) -> Iterator[Arrival]:
        """Read samples in the workers and move them to the device.

        This forks the workers at once, not at the first batch: call it before the first backward
        pass. Later, threads of the backends hold locks that nothing would release in a forked
        process.
        """
        # The user decides how many workers there are.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        # The sampler runs ahead of the batches: keep the requests until their batch arrives.
        on_the_way: deque[Request] = deque()
        # The types of DataLoader know neither batches read at once nor keys as indices.
        loader: Any = DataLoader(
            cast(Any, _Keyed(self.data, self.finish.seed)),
            batch_sampler=cast(Any, _Forwarder(requests, on_the_way)),
            num_workers=self.workers,
            collate_fn=cast(Any, _collate),
            worker_init_fn=partial(start_worker, os.getpid()),
            multiprocessing_context=WorkerContext() if self.workers else None,
            pin_memory=self.device.type == "cuda",
            # Without it, DataLoader would draw from the generator of the training.
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
                # End the workers now: the trace of the error keeps this frame alive.
                del read
                raise batch
            inputs, targets, stamps = batch
            arrived = time.perf_counter()
            # Do not count the first batch, which waits for the workers to start, nor a wait while
            # the GPU still has work in its queue.
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
        """Finish the samples that have arrived."""
        assert arrival.samples is not None
        inputs, targets = arrival.samples
        inputs = self.finish(inputs, arrival.request, epoch)
        self.watch.mark("pre-process")
        return inputs, targets

    def batches(self, requests: Iterable[Request]) -> Iterator[Batch]:
        """Read samples in the workers, move them to the device, and finish them there."""
        return (self.batch(arrival) for arrival in self.arrivals(requests))


class _Mover:
    """Copies on a separate stream: the next batch moves to the device while this one trains."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.launched: deque[torch.cuda.Event] = deque()

    def move(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors on the device."""
        if self.stream is None:
            return tensors
        current = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self.stream):
            moved = tuple(t.to(self.device, non_blocking=True) for t in tensors)
        current.wait_stream(self.stream)
        for tensor in moved:
            # Their memory may be reused only after the training is done with it.
            tensor.record_stream(current)
        return moved

    def step_launched(self) -> None:
        """Wait until the queue of the device holds only a few steps."""
        if self.stream is None:
            return
        self.launched.append(torch.cuda.current_stream(self.device).record_event())
        if len(self.launched) > AHEAD:
            self.launched.popleft().synchronize()

    def idle(self) -> bool:
        """Return whether the device has finished all its work."""
        return all(event.query() for event in self.launched)


class _Forwarder:
    """Yields requests as DataLoader wants them, lists of keys, and puts each `on_the_way`."""

    def __init__(self, requests: Iterable[Request], on_the_way: deque[Request]) -> None:
        self.requests, self.on_the_way = requests, on_the_way

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for request in self.requests:
            self.on_the_way.append(request)
            yield [(request.epoch, index) for index in request.indices.tolist()]


Read = tuple[float, list[Any] | LockstepError]
"""The time at which reading began, and the samples."""


class _Keyed:
    """Keys the randomness of a data set per sample, whichever generator it uses."""

    def __init__(self, data: Any, seed: int) -> None:
        self.data, self.seed = data, seed

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, keys: list[tuple[int, int]]) -> Read:
        start = time.perf_counter()
        if get_worker_info() is not None:
            return start, self._read(keys)
        # Without workers, this is the training process: restore its generators.
        states = generator_states()
        try:
            return start, self._read(keys)
        finally:
            restore_generators(states)

    def _read(self, keys: list[tuple[int, int]]) -> list[Any] | LockstepError:
        try:
            return self._samples(keys)
        except LockstepError as error:
            # The receiver raises it: DataLoader would wrap an error of a worker in its trace.
            return error

    def _samples(self, keys: list[tuple[int, int]]) -> list[Any]:
        samples = []
        for epoch, index in keys:
            seed_generators(key(self.seed, epoch, index, "sample"))
            try:
                samples.append(self.data[index])
            except LockstepError:
                raise
            except Exception as error:
                where = f"sample {index} of {type(self.data).__name__}"
                raise DataError(raised(where, error)) from error
        return samples


def _collate(read: Read) -> tuple[Tensor, Tensor, tuple[float, float, float]] | LockstepError:
    start, samples = read
    if isinstance(samples, LockstepError):
        return samples
    end = time.perf_counter()
    try:
        return _stacked(samples, start, end)
    except LockstepError as error:
        return error


def _stacked(
    samples: list[Any], start: float, end: float
) -> tuple[Tensor, Tensor, tuple[float, float, float]]:
    for sample in samples:
        check_pair(sample)
    try:
        inputs, targets = default_collate(samples)
    except (RuntimeError, TypeError) as error:
        raise DataError(
            f"the samples cannot be stacked into one batch: {error}. A recipe needs samples of one "
            "shape: pad them in __getitem__, or write the loop with lockstep.Loop, which takes a "
            "collate function."
        ) from None
    for value in (inputs, targets):
        if not isinstance(value, Tensor):
            raise DataError(
                f"inputs or targets of the data set became a {type(value).__name__}, not a tensor. "
                "Let its __getitem__ return two tensors."
            )
    return inputs, targets, (start, end, time.perf_counter())


def start_worker(parent: int, number: int) -> None:
    """Let a data worker end with its parent, and not by Ctrl-C."""
    die_with(parent)
    # Leave the process group: Ctrl-C or `timeout` signal the whole group, and the replica needs its
    # workers until it has ended in good order.
    os.setpgrp()


def loader_limits(starved: float, seconds: float, samples: float, workers: int) -> str | None:
    """Return a warning if the model waited for data `starved` of `seconds`; None if that is little.

    `samples` is the number of samples that one replica trained on meanwhile.
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
