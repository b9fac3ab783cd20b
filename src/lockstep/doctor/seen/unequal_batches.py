"""Ranks have different numbers of batches in a pass: at its end some wait for the others."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """Training passes that ended on some rank, and went on longer on another."""
    wrapped = any(True for rank in trace.ranks for _ in rank.of("wrapped"))
    joins = any(True for rank in trace.ranks for _ in rank.of("join"))
    if not wrapped or joins:
        return
    told = set()
    for passes in trace.together():
        first = passes[0]
        if not any(one.trains for one in passes) or first.loader.number in told:
            continue
        counts = [len(one.batches) for one in passes]
        lengths = [one.loader["length"] for one in passes]
        over = [count for count, one in zip(counts, passes, strict=True) if one.complete]
        if over and max(counts) > min(over):
            shown = counts
        elif None not in lengths and len(set(lengths)) > 1:
            shown = lengths
        else:
            continue
        told.add(first.loader.number)
        by_rank = ", ".join(f"{count} on rank {n}" for n, count in enumerate(shown))
        yield Seen(first.place, f"the ranks have different numbers of batches: {by_rank}")
