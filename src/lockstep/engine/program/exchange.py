"""Add gradients over the replicas, with the counts and losses of the step.

Flat buffers hold all gradients that one optimizer uses. A parameter without a gradient on this
replica counts as zero, and a flag tells whether any replica has one: so every replica may use other
parameters, as with layers that are skipped at random. The last buffer also carries the table of the
step: sums and counts of all shards, each written by the replica that computed the shard. Adding
zeros to them is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.engine.exchange.reduce import tree_reduce
from lockstep.engine.exchange.shared_memory import SharedMemory, set_up
from lockstep.engine.group import Group
from lockstep.engine.program.tree import Gradients, present

ALIGN = 16
"""Elements to which each gradient is aligned, so that kernels treat it like memory of its own."""


class Carrier:
    """Adds tensors over a group: through shared memory, gloo or NCCL."""

    def __init__(self, group: Group, timeout: float, *, exact: bool) -> None:
        self.group, self.exact = group, exact
        found = set_up(group, timeout) if group.device.type == "cpu" else None
        self.memory = found if isinstance(found, SharedMemory) else None
        self.name = "shared memory" if self.memory else dist.get_backend()

    @property
    def overlaps(self) -> bool:
        """Whether a sum can travel while the replica computes."""
        here = self.group.exchange_device.type == self.group.device.type
        return self.memory is None and not self.exact and here

    def add(self, buffer: Tensor) -> None:
        """Replace `buffer` by the sum over all replicas; in exact mode in tree order."""
        own = buffer.to(self.group.exchange_device)
        if self.memory is not None:
            self.memory.add(own)
        elif self.exact:
            tree_reduce(own)
        else:
            dist.all_reduce(own)
        if own is not buffer:
            buffer.copy_(own)

    def start(self, buffer: Tensor) -> dist.Work:
        """Begin to replace `buffer` by the sum over all replicas; wait for what this returns."""
        work = dist.all_reduce(buffer, async_op=True)
        assert work is not None
        return work


class Bucket(NamedTuple):
    """Gradients that travel together."""

    members: list[int]
    """The numbers of their parameters."""
    buffer: Tensor


class GradientExchange:
    """Adds the gradients of some parameters, in buffers that are kept from step to step."""

    def __init__(
        self,
        carrier: Carrier,
        parameters: list[Tensor],
        shards: int,
        *,
        order: Sequence[int] | None = None,
        bucket_bytes: float = float("inf"),
    ) -> None:
        """Lay the parameters out in this order, in buckets of about `bucket_bytes`.

        Without an order, each type of number gets one bucket.
        """
        self.carrier, self.parameters, self.shards = carrier, parameters, shards
        if order is None:
            # float32 comes last: the table travels with it.
            kinds = list(dict.fromkeys(p.dtype for p in parameters if p.dtype != torch.float32))
            place = {kind: number for number, kind in enumerate([*kinds, torch.float32])}
            order = sorted(range(len(parameters)), key=lambda n: place[parameters[n].dtype])
        self.buckets: list[Bucket] = []
        self.views: list[Tensor] = [torch.empty(0)] * len(parameters)
        rows = _rows(parameters, order, bucket_bytes)
        header = len(parameters) + 6 * shards
        device = carrier.group.device
        for number, members in enumerate(rows):
            kind = parameters[members[0]].dtype if members else torch.float32
            lengths = [-(-parameters[n].numel() // ALIGN) * ALIGN for n in members]
            length = sum(lengths) + header * (number + 1 == len(rows))
            buffer = torch.zeros(length, dtype=kind, device=device)
            start = 0
            for n, own in zip(members, lengths, strict=True):
                self.views[n] = _view(buffer, start, parameters[n])
                start += own
            self.buckets.append(Bucket(members, buffer))
        end = self.buckets[-1].buffer[-header:]
        self.flags = end[: len(parameters)]
        self.table = end[len(parameters) :].view(3, 2, shards)

    def __call__(self, gradients: Gradients, table: Tensor) -> tuple[Gradients, Tensor]:
        """Return the sums of gradients and tables over all replicas.

        `table` is (2, shards) in float64, with zeros where another replica computed the shard.
        """
        for bucket in self.buckets:
            self.fill(bucket, gradients)
        self.announce(gradients, table)
        for bucket in self.buckets:
            self.carrier.add(bucket.buffer)
        return self.sums(gradients)

    def fill(self, bucket: Bucket, *sources: Gradients) -> None:
        """Write the sum of several gradients into a bucket; zeros for parameters without any."""
        first = [next((s[n] for s in sources if s[n] is not None), None) for n in bucket.members]
        pairs = [
            (self.views[n], g) for n, g in zip(bucket.members, first, strict=True) if g is not None
        ]
        if len(pairs) < len(bucket.members):
            bucket.buffer.zero_()
        if pairs:
            torch._foreach_copy_([view for view, _ in pairs], [g for _, g in pairs])
        for number, n in enumerate(bucket.members):
            for source in sources:
                if (more := source[n]) is not None and more is not first[number]:
                    self.views[n].add_(more)

    def announce(self, gradients: Gradients, table: Tensor) -> None:
        """Write into the last bucket which parameters have a gradient here, and the table."""
        if len(present(gradients)) == len(gradients):
            self.flags.fill_(1.0)
        else:
            self.flags.copy_(torch.tensor([float(g is not None) for g in gradients]))
        _split(table, self.table)

    def sums(self, gradients: Gradients) -> tuple[Gradients, Tensor]:
        """Return what the buffers hold after the exchange."""
        found = self.table.double().sum(0)
        if len(present(gradients)) == len(gradients):
            # Reading the flags would make the host wait for the device.
            return list(self.views), found
        used = zip(self.views, self.flags.tolist(), strict=True)
        return [view if flag else None for view, flag in used], found


def _rows(parameters: list[Tensor], order: Sequence[int], bucket_bytes: float) -> list[list[int]]:
    """Return the parameters of each bucket; the last one holds float32, maybe nothing else."""
    rows: list[list[int]] = []
    size = 0
    for n in order:
        p = parameters[n]
        full = size >= bucket_bytes
        if not rows or full or parameters[rows[-1][-1]].dtype != p.dtype:
            rows.append([])
            size = 0
        rows[-1].append(n)
        size += p.numel() * p.element_size()
    if not rows or parameters[rows[-1][-1]].dtype != torch.float32:
        rows.append([])
    return rows


def _view(buffer: Tensor, place: int, p: Tensor) -> Tensor:
    """Return the part of the buffer for a parameter, in its layout."""
    flat = buffer[place : place + p.numel()]
    dense = torch.ops.aten.is_non_overlapping_and_dense(p)
    return flat.as_strided(p.shape, p.stride()) if dense else flat.view(p.shape)


def _split(values: Tensor, pieces: Tensor) -> None:
    """Write float64 values as sums of three float32 values, which is exact."""
    rest = values
    for piece in pieces:
        piece.copy_(rest)
        rest = rest - piece.double()
