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
        if any(one["parts"] or _in_parts(one) or not _whole(one) for one in same):
            continue
        if first["samples"] > 1 and same_data(same):
            reason = f"each of the {len(same)} ranks goes over all {first['samples']} samples"
            yield Sighting(first.place, reason)


def _in_parts(loader: Loader) -> bool:
    """Return whether the batches are smaller than the loader's own: then each rank has its part."""
    size = loader["batch_size"]
    training = [one for one in loader.passes if one.trains]
    taken = [len(batch.get("indices", ())) for one in training for batch in one.batches]
    return bool(size and taken) and max(taken) < min(size, loader["samples"])


def _whole(loader: Loader) -> bool:
    """Return whether a rank reads all samples in a pass, by its sampler or in fact."""
    seen_all = any(p.complete and len(set(p.indices)) == loader["samples"] for p in loader.passes)
    return seen_all or (loader["drawn"] == loader["samples"] and _has_room(loader))


def _has_room(loader: Loader) -> bool:
    """Return whether a pass has enough batches for all samples; some batch samplers take fewer."""
    length, size = loader["length"], loader["batch_size"]
    full = length is not None and size is not None and (length + loader["drop_last"]) * size
    return bool(full and full >= loader["samples"])
