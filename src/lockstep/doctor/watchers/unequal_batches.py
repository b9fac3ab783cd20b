"""Ranks with different numbers of batches in a pass: at its end some wait for the others."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting, by_rank
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find training passes that ended on one rank and continued on another."""
    if not any(trace.of("wrapped")) or trace.joins:
        return
    reported = set()
    ended_early = trace.cut or any(trace.of("stopped"))
    for passes in trace.together():
        first = passes[0]
        if not any(one.trains for one in passes) or first.loader.number in reported:
            continue
        # A rank does not train on a batch that it discards because another rank has none left.
        ended = trace.outcome.how == "finished"
        counts = [one.learned if ended else len(one.batches) for one in passes]
        lengths = [one.loader["length"] for one in passes]
        over = [count for count, one in zip(counts, passes, strict=True) if one.complete]
        met = bool(over) and max(counts) > min(over)
        # If a script leaves its passes early, their lengths do not matter.
        last = first.turn + 1 == len(first.loader.passes)
        differ = None not in lengths and len(set(lengths)) > 1
        unmet = ended_early and last and not over and differ
        if not met and not unmet:
            continue
        shown = counts if met else lengths
        reported.add(first.loader.number)
        reason = f"the ranks have different numbers of batches: {by_rank(shown)}"
        yield Sighting(first.place, reason, certain=met)
