"""Record steps as CUDA graphs: all kernels of a step start with one launch.

A graph reads what differs from step to step (samples, learning rate, epoch, keys) from memory that
is filled before each replay.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.data import Arrival
from lockstep.engine.sampler import Step
from lockstep.engine.step.training_step import Taken, TrainingStep

BLOCK = 8
"""Steps in one graph, if they are short."""
SHORT = 0.5e-3
"""Seconds of a step that takes as long to start on the host as to run on the device."""


class Captured:
    """A step recorded as one graph."""

    def __init__(self, inner: TrainingStep, step: Step, arrivals: list[Arrival]) -> None:
        """Record; nothing is executed yet."""
        self.inner = inner
        self.arrivals = [arrival.copy() for arrival in arrivals]
        self.homes = [tensor for arrival in self.arrivals for tensor in arrival.tensors()]
        self.generator = inner.model.cuda_generator
        # Set by the step before: zero unless a layer has drawn from it since it was seeded.
        self.draws = self.generator.get_offset() > 0
        self.graph = torch.cuda.CUDAGraph()
        with recording(self.graph, inner.device):
            self.items = inner.compute(step, self.arrivals)

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Fill in what is new, and replay the rest."""
        rate = self.inner.announce(step)
        given = [tensor for arrival in arrivals for tensor in arrival.tensors()]
        for home, tensor in zip(self.homes, given, strict=True):
            home.copy_(tensor, non_blocking=True)
        if self.draws:
            self.generator.manual_seed(self.inner.model.generator_seed(step, step.parts[0]))
        self.graph.replay()
        return Taken(self.items, rate)


class Blocks:
    """Several steps recorded as one graph.

    A step is put off until a block is full. Call `flush` before reading the state.
    """

    def __init__(self, single: Captured, step: Step, arrivals: list[Arrival]) -> None:
        """Record a block of steps like this one."""
        self.single, self.items = single, single.items
        inner = single.inner
        self.model, self.feed, self.update = inner.model, inner.feed, inner.update
        rates, key, device = self.update.rates, self.model.step_key, inner.device
        self.queue: list[tuple[Step, list[Arrival]]] = []
        self.launched = False
        """Whether the last step came with a launch of a block."""
        self.rates = torch.zeros(BLOCK, len(rates), device=device)
        self.keys = torch.zeros(BLOCK, dtype=torch.int64, device=device)
        self.homes = [a.request.indices.expand(BLOCK, -1).clone() for a in arrivals]
        self.graph = torch.cuda.CUDAGraph()
        # In the memory of the single step: they never run at the same time.
        with recording(self.graph, device, single.graph.pool()):
            for number in range(BLOCK):
                for home, rate in zip(rates, self.rates[number], strict=True):
                    home.copy_(rate)
                if key is not None:
                    key.copy_(self.keys[number])
                pairs = zip(arrivals, self.homes, strict=True)
                mine = [Arrival(a.request._replace(indices=h[number])) for a, h in pairs]
                inner.compute(step, mine)

    @staticmethod
    def fits(single: Captured, step: Step, arrivals: list[Arrival]) -> bool:
        """Tell whether steps can be put off: data live on the device, no generator is seeded."""
        resident = all(arrival.samples is None for arrival in arrivals)
        return not single.draws and resident and step.stride.rounds == 1

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Put the step off, or take the whole block with it."""
        if self.queue and self.queue[0][0].epoch != step.epoch:
            self.flush()
        self.queue.append((step, arrivals))
        self.launched = len(self.queue) == BLOCK
        if self.launched:
            self._take_block()
        return Taken(self.items, self.update.rate_of(step))

    def _take_block(self) -> None:
        steps = [step for step, _ in self.queue]
        self.feed.turn_to(steps[0])
        rates = [self.update.rates_of(step) for step in steps]
        self.rates.copy_(torch.tensor(rates), non_blocking=True)
        if self.model.step_key is not None:
            keys = [self.model.key_of(step) for step in steps]
            self.keys.copy_(torch.tensor(keys), non_blocking=True)
        for number, home in enumerate(self.homes):
            home.copy_(_stacked([a[number].request.indices for _, a in self.queue]))
        self.queue.clear()
        self.graph.replay()

    def flush(self) -> None:
        """Take the steps that were put off."""
        for step, arrivals in self.queue:
            self.single(step, arrivals)
        self.queue.clear()


def recording(
    graph: torch.cuda.CUDAGraph, device: torch.device, pool: Any = None
) -> torch.cuda.graph:
    """Record what follows into `graph`."""
    return torch.cuda.graph(
        graph,
        pool=pool,
        stream=torch.cuda.current_stream(device),
        # Other threads (pinned memory, NCCL's watchdog) continue to call CUDA meanwhile.
        capture_error_mode="thread_local",
    )


def _stacked(rows: list[Tensor]) -> Tensor:
    """Stack rows; return a view if they are slices of one order at equal distances."""
    places = [row.storage_offset() for row in rows]
    distance = places[1] - places[0]
    even = all(place == places[0] + n * distance for n, place in enumerate(places))
    one = len({row.untyped_storage().data_ptr() for row in rows}) == 1
    if even and one and distance > 0:
        return rows[0].as_strided((len(rows), len(rows[0])), (distance, 1))
    return torch.stack(rows)
