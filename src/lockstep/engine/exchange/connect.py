"""The gradient exchange of a run: its terms, settled once at start-up, and DDP set to them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.compression import AtOnce, Wire, attach, bf16
from lockstep.engine.exchange.link import MIB, Link, best_bucket, finish, measure
from lockstep.engine.exchange.noise import RunNoise
from lockstep.engine.exchange.powersgd import PowerSGD, payload
from lockstep.engine.exchange.reduce import ExactReduce, FastReduce
from lockstep.engine.exchange.shared_memory import Board, set_up
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.step.timeline import Timeline, all_reduce

NOT_MEASURED = MIB
"""Bytes of gradients below which one bucket holds them all, whatever the link."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a run exchanges its gradients; run.json has them under `exchange`."""

    wire: str
    through: str
    """`nccl`, `gloo` or `shared memory`."""
    why: str
    """Why it is not shared memory, where that was looked into."""
    gradient_bytes: int
    """Gradients of one replica."""
    sent_bytes: int
    """What one replica sends in a step, as a ring: 2 (W - 1) / W of the payload. PowerSGD sends
    whole gradients while the learning rate warms up. Through shared memory nothing is sent."""
    bucket_bytes: int
    """Gradients that are exchanged at once, at least; a tensor is never cut."""
    link: Link | None
    """What was measured, if the size of the buckets came from it."""

    def described(self) -> dict[str, Any]:
        """For run.json."""
        return asdict(self) | {"link": self.link and self.link._asdict()}


# Renamed in torch 2.13.
_NEW = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
_KEEP_BUFFERS: dict[str, Any] = {"forward_sync_buffers" if _NEW else "broadcast_buffers": False}


class Exchange(NamedTuple):
    """A model whose gradients are exchanged, and who does it."""

    model: nn.Module
    reduce: FastReduce | ExactReduce
    powersgd: PowerSGD | None
    terms: Terms | None
    """None for a replica alone."""


def connect(
    job: Job,
    group: Group,
    module: nn.Module,
    timeline: Timeline | None,
    noise: RunNoise | None,
    whole: int,
) -> Exchange:
    """Make a DDP model of `module`, unless the replica is alone.

    PowerSGD sends the gradients of the first `whole` steps as they are.
    """
    if group.alone:
        reduce = ExactReduce(module) if job.exact else FastReduce(module, 1)
        return Exchange(module, reduce, None, None)
    terms, board = settle(job, group, [p for p in module.parameters() if p.requires_grad])
    model = DistributedDataParallel(
        module,
        device_ids=[group.device.index] if group.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        # One bucket for all may be said with any larger number.
        bucket_cap_mb=job.bucket_mb or max(1.0, terms.bucket_bytes / MIB),
        # Batch-norm statistics are kept per shard and merged on demand.
        **_KEEP_BUFFERS,
    )
    if job.exact:
        exact = ExactReduce.attach(model, timeline, board.add if board is not None else None)
        exact.listen = noise.before if noise is not None else None
        return Exchange(model, exact, None, terms)
    thin = PowerSGD(whole) if job.wire == "powersgd" else None
    exchange: Callable[[dist.GradBucket], torch.futures.Future[Tensor]] | None = None
    if board is not None:
        exchange = AtOnce(board, timeline)
    elif job.wire != "fp32":
        exchange = Wire(thin or bf16, job.timeout)
    if noise is not None:
        exchange = noise.around(exchange or all_reduce)
    if timeline is not None and board is None:
        timeline.watch_exchange(model, exchange or all_reduce)
    elif exchange is not None:
        # Float32 is left to DDP itself where nobody listens.
        attach(model, exchange)
    return Exchange(model, FastReduce(model, group.world.size), thin, terms)


def settle(job: Job, group: Group, parameters: Sequence[Tensor]) -> tuple[Terms, Board | None]:
    """Find the way, and measure the link if the size of the buckets depends on it."""
    board: Board | str = ""
    if job.wire != "fp32":
        board = "the wire has a way of its own"
    elif group.device.type == "cpu":
        board = set_up(group, job.timeout)
    total = sum(p.numel() * p.element_size() for p in parameters)
    reduced = _reduced(job.wire, parameters)
    link = None
    if job.bucket_mb is not None:
        bucket = job.bucket_mb * MIB
    elif isinstance(board, Board):
        # Backward waits for each bucket, so the fewer the better.
        bucket = total
    elif job.wire == "powersgd" or total <= NOT_MEASURED:
        # Thin matrices are small: two all-reduces for all of them cost less than any overlap saves.
        bucket = total
    else:
        link = measure(group)
        bucket = best_bucket(link, reduced) * total / reduced
    size = group.world.size
    shared = isinstance(board, Board)
    terms = Terms(
        wire=job.wire,
        through="shared memory" if shared else dist.get_backend(),
        why=board if isinstance(board, str) else "",
        gradient_bytes=total,
        sent_bytes=0 if shared else 2 * (size - 1) * reduced // size,
        bucket_bytes=max(1, min(total, int(bucket))),
        link=link,
    )
    return terms, board if isinstance(board, Board) else None


def _reduced(wire: str, parameters: Sequence[Tensor]) -> int:
    """Bytes that are reduced in one step."""
    if wire == "bf16":
        return sum(p.numel() * 2 for p in parameters)
    if wire == "powersgd":
        return sum(payload(p) * max(4, p.element_size()) for p in parameters)
    return sum(p.numel() * p.element_size() for p in parameters)


SUMS = 15
"""That are timed to tell how long one takes."""


def time_exchange(group: Group, elements: int, timeout: float = 60.0) -> tuple[float, bool]:
    """Seconds to add up so many float32 gradients, and whether backward can go on meanwhile."""
    board = set_up(group, timeout) if group.device.type == "cpu" else None
    add = board.add if isinstance(board, Board) else dist.all_reduce
    buffer = torch.zeros(elements, device=group.device)
    times = []
    for _ in range(SUMS):
        group.objects(None)
        finish(group)
        began = time.perf_counter()
        add(buffer)
        finish(group)
        times.append(time.perf_counter() - began)
    # As slow as its slowest member.
    return max(group.objects(median(times))), not isinstance(board, Board)
