"""The replicas as a group: joining, leaving, and the small exchanges besides the gradients."""

from __future__ import annotations

import datetime
import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.errors import PlanError
from lockstep.world import World, restarts


class Group:
    """All replicas of one run. With one replica nothing is exchanged and nothing is joined."""

    def __init__(
        self,
        world: World,
        *,
        store: str | None = None,
        timeout: float = 600.0,
        share_gpu: bool = False,
    ) -> None:
        """Join: through the file `store`, or as the launcher's environment says."""
        self.world = world
        self.device = torch.device(world.device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            # Not the default stream: work on it cannot be recorded as a graph.
            torch.cuda.set_stream(torch.cuda.Stream(self.device))
        self.alone = world.size == 1
        if self.alone:
            return
        if dist.is_initialized():
            raise PlanError(
                "this process has already joined a process group, and lockstep joins its own. Call "
                "destroy_process_group first, or start the training before init_process_group."
            )
        on_gpu = self.device.type == "cuda" and not share_gpu
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=_store(world, store),
            rank=world.rank,
            world_size=world.size,
            timeout=datetime.timedelta(seconds=timeout),
            device_id=self.device if on_gpu else None,
        )
        # Small tensors travel where the backend wants them.
        self.wire = self.device if on_gpu else torch.device("cpu")

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all replicas, in place where that is possible."""
        if self.alone:
            return values
        wire = values.to(self.wire)
        dist.all_reduce(wire)
        return wire.to(values.device)

    def rows(self, local: Tensor) -> Tensor:
        """The rows of all replicas, in the order of their ranks."""
        if self.alone:
            return local
        wire = local.to(self.wire).contiguous()
        parts = [torch.empty_like(wire) for _ in range(self.world.size)]
        dist.all_gather(parts, wire)
        return torch.cat(parts).to(local.device)

    def objects(self, value: Any) -> list[Any]:
        """The values of all replicas, in the order of their ranks."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.world.size
        dist.all_gather_object(values, value)
        return values

    @contextmanager
    def first_on_machine(self) -> Iterator[None]:
        """Run the body on one replica of each machine first, then on the others: for downloads."""
        if not self.alone and self.world.local_rank != 0:
            dist.barrier()
        yield
        if not self.alone and self.world.local_rank == 0:
            dist.barrier()

    def leave(self) -> None:
        """Leave the group; drop every DDP model first, or its threads may abort the process."""
        gc.collect()
        if not self.alone and dist.is_initialized():
            dist.destroy_process_group()


_JOINS = itertools.count()


def _store(world: World, path: str | None) -> dist.Store:
    if path is not None:
        return dist.FileStore(path, world.size)
    store, _, _ = next(iter(dist.rendezvous("env://")))
    # The launcher keeps its store over restarts and from one run to the next: the prefix hides the
    # addresses of peers that have left.
    return dist.PrefixStore(f"lockstep-{restarts()}-{next(_JOINS)}", store)
