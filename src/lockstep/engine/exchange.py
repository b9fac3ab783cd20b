"""The terms of the gradient exchange, settled once at start-up: what travels, in which pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor

from lockstep.engine import powersgd
from lockstep.engine.board import Board, set_up
from lockstep.engine.group import Group
from lockstep.engine.job import Job
from lockstep.engine.link import MIB, Link, best_bucket, measure

NOT_MEASURED = MIB
"""Bytes of gradients below which one bucket holds them all, whatever the link."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a run exchanges its gradients; run.json has them under `exchange`."""

    wire: str
    through: str
    """`nccl`, `gloo` or `shared memory`."""
    why: str
    """Why replicas on the CPU do not use shared memory, if they do not."""
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


def settle(job: Job, group: Group, parameters: Sequence[Tensor]) -> tuple[Terms, Board | None]:
    """Find the way, and measure the link if the size of the buckets depends on it."""
    board: Board | str = ""
    if job.wire != "fp32":
        board = "the wire has a way of its own"
    elif group.device.type == "cpu":
        board = set_up(group, job.timeout)
    total = sum(p.numel() * p.element_size() for p in parameters)
    payload = _payload(job.wire, parameters)
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
        bucket = best_bucket(link, payload) * total / payload
    size = group.world.size
    shared = isinstance(board, Board)
    terms = Terms(
        wire=job.wire,
        through="shared memory" if shared else dist.get_backend(),
        why=board if isinstance(board, str) else "",
        gradient_bytes=total,
        sent_bytes=0 if shared else 2 * (size - 1) * payload // size,
        bucket_bytes=max(1, min(total, int(bucket))),
        link=link,
    )
    return terms, board if isinstance(board, Board) else None


def _payload(wire: str, parameters: Sequence[Tensor]) -> int:
    """Bytes that are reduced in one step."""
    if wire == "bf16":
        return sum(p.numel() * 2 for p in parameters)
    if wire == "powersgd":
        return sum(powersgd.payload(p) * max(4, p.element_size()) for p in parameters)
    return sum(p.numel() * p.element_size() for p in parameters)
