"""Set up the gradient exchange of a run: choose its terms once, at start-up, and build DDP."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.compression.choice import Memory
from lockstep.engine.exchange.hooks import (
    BlockingExchange,
    Hook,
    OverlappedExchange,
    all_reduce,
    attach,
)
from lockstep.engine.exchange.link import MIB, Link, best_bucket, finish, measure
from lockstep.engine.exchange.noise import RunNoise
from lockstep.engine.exchange.reduce import ExactReduce, FastReduce
from lockstep.engine.exchange.shared_memory import SharedMemory, set_up
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.step.timeline import Timeline

NOT_MEASURED = MIB
"""Bytes of gradients below which one bucket holds them all, whatever the link."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a run exchanges its gradients; run.json holds this under `exchange`."""

    wire: str
    through: str
    """`nccl`, `gloo` or `shared memory`."""
    why: str
    """Why it is not shared memory, where that was considered."""
    gradient_bytes: int
    """Bytes of one replica's gradients."""
    sent_bytes: int
    """Bytes that one replica sends in a step, as a ring: 2 (W - 1) / W of the payload. PowerSGD
    sends whole gradients while the learning rate warms up. Shared memory sends nothing."""
    bucket_bytes: int
    """The fewest bytes of gradients that are exchanged at once; a tensor is never cut."""
    link: Link | None
    """The measured link, if the size of the buckets follows from it."""

    def described(self) -> dict[str, Any]:
        """Return the terms as run.json holds them."""
        return asdict(self) | {"link": self.link and self.link._asdict()}


# Renamed in torch 2.13.
_NEW = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
_KEEP_BUFFERS: dict[str, Any] = {"forward_sync_buffers" if _NEW else "broadcast_buffers": False}


class Exchange(NamedTuple):
    """How a replica exchanges its gradients."""

    model: nn.Module
    """The model to call in a step: its backward pass exchanges the gradients."""
    reduce: FastReduce | ExactReduce
    """Adds the gradients of the parts of a step."""
    memory: Memory | None
    """What the exchange keeps from step to step, if anything."""
    terms: Terms | None
    """The terms of the exchange; None if there is only one replica."""


def connect(
    job: Job,
    group: Group,
    module: nn.Module,
    timeline: Timeline | None,
    noise: RunNoise | None,
    whole: int,
) -> Exchange:
    """Make a DDP model of `module`, unless there is only one replica.

    A compression sends the gradients of the first `whole` steps as they are.
    """
    if group.alone:
        reduce = ExactReduce(module) if job.exact else FastReduce(module, 1)
        return Exchange(module, reduce, None, None)
    terms, memory = settle(job, group, [p for p in module.parameters() if p.requires_grad])
    model = DistributedDataParallel(
        module,
        device_ids=[group.device.index] if group.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        # Any larger number makes one bucket.
        bucket_cap_mb=job.bucket_mb or max(1.0, terms.bucket_bytes / MIB),
        # Batch-norm statistics are kept per shard and merged on demand.
        **_KEEP_BUFFERS,
    )
    if job.exact:
        exact = ExactReduce.attach(model, timeline, memory.add if memory is not None else None)
        exact.listen = noise.before if noise is not None else None
        return Exchange(model, exact, None, terms)
    hook: Hook | None = None
    kept: Memory | None = None
    if memory is not None:
        hook = BlockingExchange(memory, timeline)
    elif job.compression.make is not None:
        average, kept = job.compression.make(whole)
        hook = OverlappedExchange(average, job.timeout)
    if noise is not None:
        hook = noise.around(hook or all_reduce)
    if timeline is not None and memory is None:
        timeline.watch_exchange(model, hook or all_reduce)
    elif hook is not None:
        # Without a hook, DDP exchanges float32 itself.
        attach(model, hook)
    return Exchange(model, FastReduce(model, group.world.size), kept, terms)


def settle(
    job: Job, group: Group, parameters: Sequence[Tensor]
) -> tuple[Terms, SharedMemory | None]:
    """Choose the terms; measure the link if the size of the buckets depends on it."""
    memory: SharedMemory | str = ""
    compression = job.compression
    if compression.changes_gradients:
        memory = f"--wire {compression.name} sends gradients over the network"
    elif group.device.type == "cpu":
        memory = set_up(group, job.timeout)
    total = sum(p.numel() * p.element_size() for p in parameters)
    reduced = sum(compression.sent_bytes(p) for p in parameters)
    link = None
    if job.bucket_mb is not None:
        bucket = job.bucket_mb * MIB
    elif isinstance(memory, SharedMemory):
        # Backward waits for each bucket, so the fewer the better.
        bucket = total
    elif compression.one_bucket or total <= NOT_MEASURED:
        bucket = total
    else:
        link = measure(group)
        bucket = best_bucket(link, reduced) * total / reduced
    size = group.world.size
    shared = isinstance(memory, SharedMemory)
    terms = Terms(
        wire=compression.name,
        through="shared memory" if shared else dist.get_backend(),
        why=memory if isinstance(memory, str) else "",
        gradient_bytes=total,
        sent_bytes=0 if shared else 2 * (size - 1) * reduced // size,
        bucket_bytes=max(1, min(total, int(bucket))),
        link=link,
    )
    return terms, memory if isinstance(memory, SharedMemory) else None


SUMS = 15
"""Sums that are timed to find how long one takes."""


def time_exchange(group: Group, elements: int, timeout: float = 60.0) -> tuple[float, bool]:
    """Return the seconds to add `elements` float32 gradients, and whether backward can continue."""
    memory = set_up(group, timeout) if group.device.type == "cpu" else None
    add = memory.add if isinstance(memory, SharedMemory) else dist.all_reduce
    buffer = torch.zeros(elements, device=group.device)
    times = []
    for _ in range(SUMS):
        group.objects(None)
        finish(group)
        began = time.perf_counter()
        add(buffer)
        finish(group)
        times.append(time.perf_counter() - began)
    # An exchange is as slow as its slowest member.
    return max(group.objects(median(times))), not isinstance(memory, SharedMemory)
