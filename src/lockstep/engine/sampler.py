"""The global order of the samples, and each replica's part of it.

The order comes from (seed, epoch) alone. Each step takes the next global batch in that order and
cuts it into shards. The last batch of an epoch may be smaller: then its shards are smaller too, and
every sample is seen exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.data import Finish, Request, Watch, make_loader
from lockstep.engine.recipe.plan import Plan, cut
from lockstep.errors import PlanError
from lockstep.keys import key
from lockstep.scaling.batch.growth import Stride


class Part(NamedTuple):
    """The samples that go through the model of one replica at once."""

    request: Request
    """The samples."""
    shards: range
    """The shards that the samples belong to."""
    sizes: tuple[int, ...]
    """Samples in each shard, or in each round of each shard if rounds go together."""
    counts: bool
    """False if the shards are empty: then a borrowed sample with weight zero takes their place."""
    round: int = 0
    """The number of its round in the step, if a step takes several batches."""
    rounds: int = 1
    """Rounds that go through the model together."""


class Step(NamedTuple):
    """One optimizer step of one replica."""

    number: int
    """Steps before this one, over the whole run."""
    epoch: int
    batch: int
    """Batches before this one in its epoch."""
    samples: int
    """Samples that the step takes."""
    parts: list[Part]
    stride: Stride
    """The place of the step in the run."""


class GlobalOrder:
    """The order of `size` samples in every epoch."""

    def __init__(self, size: int, global_batch: int, seed: int) -> None:
        self.size, self.global_batch, self.seed = size, global_batch, seed
        self.rounds_per_epoch = -(-size // global_batch)
        """Batches in an epoch, including the last, which may be smaller."""
        self._kept: dict[tuple[int, str], Tensor] = {}

    def epoch(self, epoch: int, device: torch.device | str = "cpu") -> Tensor:
        """Return all sample numbers in the order of `epoch`."""
        place = (epoch, str(device))
        if place not in self._kept:
            generator = torch.Generator().manual_seed(key(self.seed, epoch, "order"))
            order = torch.randperm(self.size, generator=generator).to(device)
            # A loader that prefetches is at most one epoch ahead of the training.
            for old in list(self._kept)[:-3]:
                del self._kept[old]
            self._kept[place] = order
        return self._kept[place]

    def batch(self, epoch: int, batch: int, device: torch.device | str = "cpu") -> Tensor:
        """Return the sample numbers of one global batch."""
        return self.epoch(epoch, device)[
            batch * self.global_batch : (batch + 1) * self.global_batch
        ]

    def steps(
        self,
        plan: Plan,
        rank: int,
        strides: Iterable[Stride],
        device: torch.device | str = "cpu",
        *,
        together: bool = False,
    ) -> Iterator[Step]:
        """Yield the steps of replica `rank`, with all rounds in one part if they go `together`."""
        parts = plan.parts(rank)
        counted, bounds, current, order = 0, [0], -1, torch.empty(0)
        for stride in strides:
            epoch, batch = divmod(stride.round, self.rounds_per_epoch)
            first = batch * self.global_batch
            count = min(self.global_batch, self.size - first)
            if count != counted:
                counted, bounds = count, cut(count, plan.shards)
            if epoch != current:
                current, order = epoch, self.epoch(epoch, device)
            rounds = stride.rounds
            # All rounds of some shards, then all of the next: so the shards of a replica stay
            # whole subtrees of the sum on any number of replicas.
            if together and rounds > 1:
                mine = [
                    _rounds(epoch, order[first : first + rounds * count], shards, bounds, rounds)
                    for shards in parts
                ]
            else:
                mine = [
                    _part(epoch, order, first + number * count, shards, bounds, number)
                    for shards in parts
                    for number in range(rounds)
                ]
            yield Step(stride.number, epoch, batch, rounds * count, mine, stride)


def _part(
    epoch: int, order: Tensor, start: int, shards: range, bounds: list[int], number: int = 0
) -> Part:
    """Return the part of the batch that begins at `start` in the order of the epoch."""
    first, last = bounds[shards.start], bounds[shards.stop]
    if first == last:
        # Fewer samples than shards are left. Every replica must still take part in the
        # exchange, so it computes a borrowed sample with weight zero.
        sizes = (1,) + (0,) * (len(shards) - 1)
        return Part(Request(epoch, order[start : start + 1]), shards, sizes, False, number)
    sizes = tuple([bounds[shard + 1] - bounds[shard] for shard in shards])
    request = Request(epoch, order[start + first : start + last])
    return Part(request, shards, sizes, True, number)


def _rounds(epoch: int, order: Tensor, shards: range, bounds: list[int], rounds: int) -> Part:
    """Return all rounds of some full shards: those of the first shard, then of the next."""
    mine = order.view(rounds, -1)[:, bounds[shards.start] : bounds[shards.stop]]
    indices = mine.unflatten(1, (len(shards), -1)).transpose(0, 1)
    sizes = (indices.shape[2],) * (rounds * len(shards))
    return Part(Request(epoch, indices.flatten()), shards, sizes, True, rounds=rounds)


@dataclass(frozen=True)
class GlobalBatch:
    """A replica's part of one global batch. It unpacks into inputs, targets and share."""

    inputs: Tensor
    targets: Tensor
    share: float
    """Multiply the mean loss by this: then DDP's mean over the replicas is that of the batch."""
    samples: int
    """Samples of the whole global batch."""
    sizes: tuple[int, ...]
    """Samples in each of this replica's shards."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over inputs, targets and share, which a plain loop needs."""
        return iter((self.inputs, self.targets, self.share))

    def shards(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        """Yield inputs, targets and weight of each shard; an empty one borrows a sample."""
        first = 0
        for size in self.sizes:
            place = slice(first, first + size) if size else slice(0, 1)
            yield self.inputs[place], self.targets[place], float(size > 0 and self.share > 0)
            first += size


class GlobalBatches:
    """A loader for plain DDP loops whose global batches do not depend on the number of replicas.

    It needs no DistributedSampler and no set_epoch, pads nothing and drops nothing.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        global_batch: int,
        seed: int = 0,
        epochs: int = 1,
        shards: int | None = None,
        rank: int | None = None,
        num_replicas: int | None = None,
        device: torch.device | str = "cpu",
        workers: int = 0,
        augment: Sequence[Callable[[Tensor, Any], Tensor]] = (),
        prepare: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Take rank and number of replicas from torch.distributed unless they are given.

        With `shards`, a batch can also be taken shard by shard, which `ExactReduce` needs.
        """
        if global_batch < 1:
            raise PlanError(f"global_batch is {global_batch}; it must be 1 or more.")
        joined = dist.is_available() and dist.is_initialized()
        self.rank = rank if rank is not None else (dist.get_rank() if joined else 0)
        self.replicas = num_replicas or (dist.get_world_size() if joined else 1)
        self.epochs, self.shards = epochs, shards or self.replicas
        if self.shards % self.replicas:
            raise PlanError(f"{self.shards} shards do not fit {self.replicas} replicas.")
        finish = Finish(seed, augment, prepare)
        self.loader = make_loader(
            dataset, torch.device(device), finish, watch=Watch(), workers=workers
        )
        self.order = GlobalOrder(len(dataset), global_batch, seed)

    def __len__(self) -> int:
        """Return the steps of all epochs."""
        return self.epochs * self.order.rounds_per_epoch

    def _parts(self) -> Iterator[tuple[Part, int]]:
        for number in range(len(self)):
            epoch, batch = divmod(number, self.order.rounds_per_epoch)
            order = self.order.epoch(epoch, self.loader.index_device)
            first = batch * self.order.global_batch
            samples = min(self.order.global_batch, self.order.size - first)
            own = self.shards // self.replicas
            shards = range(self.rank * own, (self.rank + 1) * own)
            yield _part(epoch, order, first, shards, cut(samples, self.shards)), samples

    def __iter__(self) -> Iterator[GlobalBatch]:
        """Yield this replica's part of each global batch, epoch after epoch."""
        batches = self.loader.batches(part.request for part, _ in self._parts())
        for (part, samples), (inputs, targets) in zip(self._parts(), batches, strict=True):
            share = self.replicas * sum(part.sizes) * part.counts / samples
            yield GlobalBatch(inputs, targets, share, samples, part.sizes)
