"""Steps recorded as CUDA graphs: launched as one, however many kernels they have.

What differs from step to step (samples, learning rate, epoch, keys) is read from memory that is
filled before each replay.
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
"""Seconds of a step whose start on the host takes as long as its work on the device."""


class Captured:
    """A step recorded as one graph."""

    def __init__(self, inner: TrainingStep, step: Step, arrivals: list[Arrival]) -> None:
        """Record; nothing is executed yet."""
        self.inner = inner
        self.arrivals = [arrival.copy() for arrival in arrivals]
        self.homes = [tensor for arrival in self.arrivals for tensor in arrival.tensors()]
        device = inner.replica.group.device
        self.generator = torch.cuda.default_generators[device.index or 0]
        # Set by the step before: zero unless a layer has drawn from it since it was seeded.
        self.draws = self.generator.get_offset() > 0
        self.graph = torch.cuda.CUDAGraph()
        with recording(self.graph, device):
            self.items = inner.compute(step, self.arrivals)

    def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
        """Fill in what is new, replay the rest."""
        rate = self.inner.announce(step)
        given = [tensor for arrival in arrivals for tensor in arrival.tensors()]
        for home, tensor in zip(self.homes, given, strict=True):
            home.copy_(tensor, non_blocking=True)
        if self.draws:
            self.generator.manual_seed(self.inner.replica.generator_seed(step, step.parts[0]))
        self.graph.replay()
        return Taken(self.items, rate)


class Blocks:
    """Several steps recorded as one graph.

    A step is put off until a block is full or somebody wants to look: call `flush` before.
    """

    def __init__(self, single: Captured, step: Step, arrivals: list[Arrival]) -> None:
        """Record a block of steps like this one."""
        self.single, self.items = single, single.items
        self.replica = replica = single.inner.replica
        device = replica.group.device
        self.queue: list[tuple[Step, list[Arrival]]] = []
        self.launched = False
        """Whether the last step came with a launch of a block."""
        self.rates = torch.zeros(BLOCK, len(replica.update.rates), device=device)
        self.keys = torch.zeros(BLOCK, dtype=torch.int64, device=device)
        self.homes = [a.request.indices.expand(BLOCK, -1).clone() for a in arrivals]
        self.graph = torch.cuda.CUDAGraph()
        # In the memory of the single step: never do both run at once.
        with recording(self.graph, device, single.graph.pool()):
            for number in range(BLOCK):
                for home, rate in zip(replica.update.rates, self.rates[number], strict=True):
                    home.copy_(rate)
                if replica.shards.random:
                    replica.shards.step.copy_(self.keys[number])
                pairs = zip(arrivals, self.homes, strict=True)
                mine = [Arrival(a.request._replace(indices=h[number])) for a, h in pairs]
                single.inner.compute(step, mine)

    @staticmethod
    def fits(single: Captured, step: Step, arrivals: list[Arrival]) -> bool:
        """Whether steps can be put off: data that live on the device, no generator to seed."""
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
        return Taken(self.items, self.replica.rate_of(step))

    def _take_block(self) -> None:
        replica, steps = self.replica, [step for step, _ in self.queue]
        replica.epoch.turn_to(steps[0].epoch)
        ratios = replica.update.ratios
        rates = [[replica.rate_of(step) * ratio for ratio in ratios] for step in steps]
        self.rates.copy_(torch.tensor(rates), non_blocking=True)
        if replica.shards.random:
            keys = [replica.shards.step_key(step.stride.round) for step in steps]
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
        # Other threads (pinned memory, NCCL's watchdog) go on calling CUDA meanwhile.
        capture_error_mode="thread_local",
    )


def _stacked(rows: list[Tensor]) -> Tensor:
    """Rows as one tensor; where they are slices of one order at equal distances, as a view."""
    places = [row.storage_offset() for row in rows]
    distance = places[1] - places[0]
    even = all(place == places[0] + n * distance for n, place in enumerate(places))
    one = len({row.untyped_storage().data_ptr() for row in rows}) == 1
    if even and one and distance > 0:
        return rows[0].as_strided((len(rows), len(rows[0])), (distance, 1))
    return torch.stack(rows)
