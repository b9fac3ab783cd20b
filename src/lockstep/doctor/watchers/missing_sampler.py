"""Ranks that each read the whole data set."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Loader, Trace, same_data


def look(trace: Trace) -> Iterator[Sighting]:
    """Find training loaders that give every rank the same data."""
    for same in trace.loaders():
        first = same[0]
        if not first.trains or first["streams"] or first["samples"] is None:
            continue
        if any(one["parts"] or not _whole(one) for one in same):
            continue
        if first["samples"] > 1 and same_data(same):
            reason = f"each of the {len(same)} ranks goes over all {first['samples']} samples"
            yield Sighting(first.place, reason)


def _whole(loader: Loader) -> bool:
    """Return whether a rank reads all samples in a pass, by its sampler or in fact."""
    seen_all = any(p.complete and len(set(p.indices)) == loader["samples"] for p in loader.passes)
    return seen_all or (loader["drawn"] == loader["samples"] and _has_room(loader))


def _has_room(loader: Loader) -> bool:
    """Return whether a pass has enough batches for all samples; some batch samplers take fewer."""
    length, size = loader["length"], loader["batch_size"]
    full = length is not None and size is not None and (length + loader["drop_last"]) * size
    return bool(full and full >= loader["samples"])
