"""The replicas as a group: join, leave, and exchange small values besides the gradients."""

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
from torch.distributed import distributed_c10d

from lockstep.errors import PlanError, RunError
from lockstep.world import World, restarts


class Group:
    """All replicas of one run. One replica joins nothing and exchanges nothing."""

    def __init__(
        self,
        world: World,
        *,
        store: str | None = None,
        timeout: float = 600.0,
        share_gpu: bool = False,
    ) -> None:
        """Join through the file `store`, or as the launcher's environment says."""
        self.world = world
        self.device = torch.device(world.device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            # Not the default stream: work on that one cannot be recorded as a graph.
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
        # Where the backend expects the small tensors that it exchanges.
        self.exchange_device = self.device if on_gpu else torch.device("cpu")

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all replicas; change `values` in place where that is possible."""
        if self.alone:
            return values
        own = values.to(self.exchange_device)
        dist.all_reduce(own)
        return own.to(values.device)

    def rows(self, local: Tensor) -> Tensor:
        """Return the rows of all replicas, in the order of their ranks."""
        if self.alone:
            return local
        own = local.to(self.exchange_device).contiguous()
        parts = [torch.empty_like(own) for _ in range(self.world.size)]
        dist.all_gather(parts, own)
        return torch.cat(parts).to(local.device)

    def objects(self, value: Any, to: str = "") -> list[Any]:
        """Return the values of all replicas, in the order of their ranks.

        `to` says what for: replicas that do different things at once are refused.
        """
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.world.size
        dist.all_gather_object(values, (to, value))
        doing = {what for what, _ in values}
        if len(doing) > 1:
            raise RunError(
                f"the replicas do different things at the same time: {', '.join(sorted(doing))}. "
                "Is something that all of them must do, such as an evaluation, under a condition "
                "that differs between them (if loop.is_first)?"
            )
        return [found for _, found in values]

    @contextmanager
    def first_on_machine(self) -> Iterator[None]:
        """Run the body on one replica of each machine first, then on the others (for downloads)."""
        if not self.alone and self.world.local_rank != 0:
            dist.barrier()
        yield
        if not self.alone and self.world.local_rank == 0:
            dist.barrier()

    def leave(self) -> None:
        """Leave the group. Drop every DDP model first, or its threads may abort the process."""
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


def disable_leaving() -> None:
    """Make `destroy_process_group` do nothing in this process from now on.

    A script that leaves its group while a DDP model is alive hangs now and then: DDP's destructor
    waits for a thread of gloo that waits for the interpreter. A process that was forked to run a
    script, and ends after it, need not leave.
    """

    def destroy_process_group(*_: Any, **__: Any) -> None:
        """Do nothing."""

    for owner in (dist, distributed_c10d):
        setattr(owner, "destroy_process_group", destroy_process_group)  # noqa: B010
