"""Every rank goes over the whole data set."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Loader, Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """A training loader without a part for each rank, over the same data on all ranks."""
    for same in trace.loaders():
        first = same[0]
        if not first.trains or first["streams"] or first["samples"] is None:
            continue
        if any(
            one["parts"] or one["drawn"] != one["samples"] or not _goes_over_all(one)
            for one in same
        ):
            continue
        if first["samples"] > 1 and _same_data(same):
            yield Seen(
                first.place,
                f"each of the {len(same)} ranks goes over all {first['samples']} samples",
            )


def _goes_over_all(loader: Loader) -> bool:
    """Whether a pass has batches enough for all samples: some batch samplers take a share."""
    length, size = loader["length"], loader["batch_size"]
    full = length is not None and size is not None and (length + loader["drop_last"]) * size
    return bool(full and full >= loader["samples"])


def _same_data(same: list[Loader]) -> bool:
    """Whether the ranks hold the same samples, as far as one can see."""
    prints = [one["contents"] or {} for one in same]
    if any(prints) and any(one.keys() != prints[0].keys() for one in prints):
        return False
    if any(prints):
        return all(
            one[name][0] == kept[0] and one[name][2] == kept[2]
            for one in prints
            for name, kept in prints[0].items()
        )
    # Nothing to compare but what was delivered: the same index must be the same sample.
    known = [
        dict(
            pair
            for p in one.passes
            for b in p.batches
            for pair in zip(b.get("indices", ()), b.get("rows", ()), strict=False)
        )
        for one in same
    ]
    shared = set.intersection(*(set(one) for one in known)) if known else set()
    return bool(shared) and all(one[i] == known[0][i] for one in known for i in shared)
