"""Add gradients over the replicas after backward, with the counts and losses of the step.

One flat buffer per type of number holds all gradients that one optimizer uses. A parameter without
a gradient on this replica counts as zero, and a flag tells whether any replica has one: so every
replica may use other parameters, as with layers that are skipped at random. The first buffer also
carries the table of the step: sums and counts of all shards, each written by the replica that
computed the shard. Adding zeros to them is exact.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.engine.exchange.reduce import tree_reduce
from lockstep.engine.exchange.shared_memory import SharedMemory, set_up
from lockstep.engine.group import Group
from lockstep.engine.program.tree import Gradients

ALIGN = 16
"""Elements to which each gradient is aligned, so that kernels treat it like memory of its own."""


class Wire:
    """What carries the sums of a group: shared memory, gloo or NCCL."""

    def __init__(self, group: Group, timeout: float, *, exact: bool) -> None:
        self.group, self.exact = group, exact
        found = set_up(group, timeout) if group.device.type == "cpu" else None
        self.memory = found if isinstance(found, SharedMemory) else None
        self.name = "shared memory" if self.memory else dist.get_backend()

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


class GradientExchange:
    """Adds the gradients of some parameters, in buffers that are kept from step to step."""

    def __init__(self, wire: Wire, parameters: list[Tensor], shards: int) -> None:
        self.wire, self.parameters, self.shards = wire, parameters, shards
        device = wire.group.device
        kinds = dict.fromkeys([torch.float32, *(p.dtype for p in parameters)])
        lengths = dict.fromkeys(kinds, 0)
        places: dict[Tensor, int] = {}
        for p in parameters:
            places[p] = lengths[p.dtype]
            lengths[p.dtype] += -(-p.numel() // ALIGN) * ALIGN
        self.gradients_end = lengths[torch.float32]
        lengths[torch.float32] += len(parameters) + 6 * shards
        self.buffers = {
            kind: torch.zeros(length, dtype=kind, device=device) for kind, length in lengths.items()
        }
        self.views = [_view(self.buffers[p.dtype], places[p], p) for p in parameters]
        header = self.buffers[torch.float32][self.gradients_end :]
        self.flags = header[: len(parameters)]
        self.table = header[len(parameters) :].view(3, 2, shards)

    def __call__(self, gradients: Gradients, table: Tensor) -> tuple[Gradients, Tensor]:
        """Return the sums of gradients and tables over all replicas.

        `table` is (2, shards) in float64, with zeros where another replica computed the shard.
        """
        for buffer in self.buffers.values():
            buffer.zero_()
        pairs = [(v, g) for v, g in zip(self.views, gradients, strict=True) if g is not None]
        if pairs:
            torch._foreach_copy_([view for view, _ in pairs], [g for _, g in pairs])
        whole = len(pairs) == len(gradients)
        if whole:
            self.flags.fill_(1.0)
        else:
            self.flags.copy_(torch.tensor([float(g is not None) for g in gradients]))
        _split(table, self.table)
        for buffer in self.buffers.values():
            if len(buffer):
                self.wire.add(buffer)
        found = self.table.double().sum(0)
        if whole:
            # Reading the flags would make the host wait for the device.
            return list(self.views), found
        used = zip(self.views, self.flags.tolist(), strict=True)
        return [view if flag else None for view, flag in used], found


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
