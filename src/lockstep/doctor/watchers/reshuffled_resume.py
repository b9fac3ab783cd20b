"""A run resumed in mid-epoch that trains again on samples of the same epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Pass, Rank, Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Compare the samples before the checkpoint with those after the resume."""
    again = trace.resumed
    if again is None or not again.ranks or not any(again.ranks[0].of("loaded")):
        return
    afterwards = {same[0].number: same for same in again.loaders()}
    for same in trace.loaders():
        loader = same[0]
        taken = {index for one in same for index in _half(one.passes)}
        resumed = afterwards.get(loader.number, [])
        later = [one for loader in resumed for one in loader.passes[:1] if one.trains]
        if not loader.trains or not taken or len(later) < len(again.ranks):
            continue
        # Compare only the rest of the epoch: the next epoch rightly takes all samples again.
        left = (loader["samples"] or 0) - len(taken)
        each = max(0, left // len(later))
        ahead = [_trained(one, rank)[:each] for one, rank in zip(later, again.ranks, strict=True)]
        repeated = taken & {index for indices in ahead for index in indices}
        if repeated:
            yield Sighting(
                later[0].place,
                f"{len(repeated)} of the {len(taken)} samples that the epoch used before the "
                "checkpoint came again after the resume",
            )
            return


def _trained(one: Pass, rank: Rank) -> list[int]:
    """Return the samples of the first pass after the resume, without skipped batches."""
    each = Counter(step["batches"] for step in rank.steps[1:]).most_common(1)
    skipped = rank.steps[0]["batches"] - (each[0][0] if each else 1)
    return [i for batch in one.batches[skipped:] for i in batch.get("indices", ())]


def _half(passes: list[Pass]) -> list[int]:
    """Return the samples of the last pass that was saved in mid-pass, up to the save."""
    for one in reversed(passes):
        if one.trains and one.saved_at:
            return [i for batch in one.batches[: one.saved_at] for i in batch.get("indices", ())]
    return []
