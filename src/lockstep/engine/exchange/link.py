"""Measure the link between the replicas, and choose the bucket size that suits it."""

from __future__ import annotations

import math
import time
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist

from lockstep.engine.group import Group

MIB = 1 << 20
SMALL, LARGE = 4 << 10, MIB
"""Bytes of the all-reduces that are timed. Below a few kilobytes gloo uses another algorithm."""
ROUNDS = 5
LEAST, MOST = MIB, 64 * MIB
"""Bounds of a bucket in bytes. A smaller one costs more in software than on any link, and
torch.compile makes no smaller ones; a larger one costs memory."""


class Link(NamedTuple):
    """An all-reduce takes `latency` + bytes / `bandwidth` seconds."""

    latency: float
    """Seconds."""
    bandwidth: float
    """Bytes of gradient per second."""


def measure(group: Group) -> Link:
    """Time a few small and large all-reduces; every replica gets the same answer."""
    times = [[_seconds(group, size) for _ in range(ROUNDS)] for size in (SMALL, LARGE)]
    own = torch.tensor([[median(t) for t in times]], dtype=torch.float64)
    # An exchange is as slow as its slowest member.
    small, large = group.rows(own).max(0).values.tolist()
    return from_times(small, large)


def _seconds(group: Group, size: int) -> float:
    content = torch.zeros(size // 4, device=group.device)
    finish(group)
    started = time.perf_counter()
    dist.all_reduce(content)
    finish(group)
    return time.perf_counter() - started


def finish(group: Group) -> None:
    """Wait until the device has finished its work."""
    if group.device.type == "cuda":
        torch.cuda.synchronize(group.device)


def from_times(small: float, large: float) -> Link:
    """Return the link on which SMALL bytes take `small` seconds and LARGE bytes take `large`.

    >>> from_times(0.001, 0.001 + (LARGE - SMALL) / 1e9)
    Link(latency=0.001, bandwidth=1000000000.0)
    """
    # A busy machine may delay the small ones more than the large ones take.
    latency = min(small, large / 2)
    return Link(latency, (LARGE - SMALL) / (large - latency))


def best_bucket(link: Link, total: float) -> float:
    """Return how many bytes of gradient to exchange at once, of `total` bytes.

    Finished buckets travel while backward runs. What remains is the latency of each bucket and the
    time of the last one: latency * total / b + b / bandwidth, which is least where b is the square
    root of latency * total * bandwidth.

    >>> best_bucket(Link(latency=0.0004, bandwidth=1e9), total=10e6)
    2000000.0
    """
    best = math.sqrt(link.latency * total * link.bandwidth)
    return min(total, MOST, max(LEAST, best))
