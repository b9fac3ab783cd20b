"""Ranks or data workers that deliver the same samples of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace

FEW = 4
HALF = 0.5


def look(trace: Trace) -> Iterator[Sighting]:
    """Compare the samples of an iterable data set between ranks and within each rank."""
    reported = set()
    for passes in trace.together():
        first = passes[0]
        if not first.loader["streams"] or first.loader.number in reported:
            continue
        counts = [Counter(one.rows) for one in passes]
        if min(map(len, counts)) < FEW:
            continue
        common = sum((counts[0] & counts[1]).values()) if len(counts) > 1 else 0
        least = min(map(Counter.total, counts))
        workers = first.loader["workers"] or 0
        copies = Counter(counts[0].values()).most_common(1)[0][0]
        if common >= HALF * least and first.trains:
            reported.add(first.loader.number)
            reason = f"{common} of the {least} samples that rank 0 took were taken by rank 1 too"
            yield Sighting(first.loader.place, reason)
        if workers > 1 and copies == workers:
            reported.add(first.loader.number)
            yield Sighting(
                first.loader.place,
                f"each sample comes {copies} times: all {workers} workers deliver the whole stream",
            )
