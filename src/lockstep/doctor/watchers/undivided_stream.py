"""Ranks or data workers that deliver the same samples of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace

FEW = 4
HALF = 0.5


def seen(trace: Trace) -> Iterator[Seen]:
    """Compare the samples of an iterable data set between ranks and within each rank."""
    told = set()
    for passes in trace.together():
        first = passes[0]
        if not first.loader["streams"] or first.loader.number in told:
            continue
        counts = [Counter(one.rows) for one in passes]
        if min(map(len, counts)) < FEW:
            continue
        common = sum((counts[0] & counts[1]).values()) if len(counts) > 1 else 0
        least = min(map(Counter.total, counts))
        workers = first.loader["workers"] or 0
        copies = Counter(counts[0].values()).most_common(1)[0][0]
        if common >= HALF * least and first.trains:
            told.add(first.loader.number)
            reason = f"{common} of the {least} samples that rank 0 took were taken by rank 1 too"
            yield Seen(first.loader.place, reason)
        if workers > 1 and copies == workers:
            told.add(first.loader.number)
            yield Seen(
                first.loader.place,
                f"each sample comes {copies} times: all {workers} workers deliver the whole stream",
            )
