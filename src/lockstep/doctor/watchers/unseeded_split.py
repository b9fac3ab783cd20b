"""Ranks that hold the samples of a data set in different orders, or different parts of it."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find lists in a data set that differ between ranks although a sampler divides it."""
    for same in trace.loaders():
        first = same[0]
        if any(one["parts"] != trace.size for one in same):
            continue
        for name, kept in (first["contents"] or {}).items():
            others = [(one["contents"] or {}).get(name) for one in same[1:]]
            other = next((o for o in others if o and o[0] == kept[0] and o[1] != kept[1]), None)
            if other is None:
                continue
            if other[2] == kept[2]:
                reason = f"the ranks hold the {kept[0]} samples in different orders (`{name}`)"
            elif name.rpartition(".")[2] == "indices":
                reason = f"the ranks were given different {kept[0]} samples of the data set"
            else:
                continue
            yield Sighting(first.place, f"{reason}, so some are trained twice and some never")
            break
