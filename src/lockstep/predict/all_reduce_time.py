"""Predict how long an all-reduce of gradients takes, and how much of it backward hides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


def all_reduce_seconds(size: float, replicas: int, latency: float, bandwidth: float) -> float:
    """Return the seconds to add `size` bytes over all replicas: alpha + 2 (n-1)/n s/B.

    The formula is that of nccl-tests; `bandwidth`, in bytes per second, is its busbw: 473e9 on 8
    H200.

    >>> all_reduce_seconds(1e9, 2, latency=0.0, bandwidth=1e9)
    1.0
    >>> all_reduce_seconds(1e9, 1, latency=0.0, bandwidth=1e9)
    0.0
    """
    if replicas == 1:
        return 0.0
    return latency + 2 * (replicas - 1) / replicas * size / bandwidth


class Span(NamedTuple):
    """A stretch of time."""

    start: float
    end: float


def exchanges(ready: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[Span]:
    """Return when each bucket travels, given when it is `ready`, by replica and bucket.

    A bucket starts when the slowest replica has it and the bucket before has arrived.

    >>> exchanges([[1.0, 2.0], [1.5, 2.0]], [1.0, 0.25])
    [Span(start=1.5, end=2.5), Span(start=2.5, end=2.75)]
    """
    spans: list[Span] = []
    free = 0.0
    for bucket, taken in enumerate(seconds):
        start = max(free, *(times[bucket] for times in ready))
        free = start + taken
        spans.append(Span(start, free))
    return spans
