"""A run that goes on in mid-epoch takes samples again that it had taken before."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Pass, Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """Samples of the pass that was saved in its midst, and of the first pass after the resume."""
    again = trace.resumed
    if again is None or not again.ranks or not any(True for _ in again.ranks[0].of("loaded")):
        return
    for number, loader in enumerate(trace.ranks[0].loaders):
        halves = [
            _half(rank.loaders[number].passes) for rank in trace.ranks if number < len(rank.loaders)
        ]
        taken = {index for half in halves for index in half}
        later = [
            rank.loaders[number].passes[0]
            for rank in again.ranks
            if number < len(rank.loaders) and rank.loaders[number].passes
        ]
        if not loader.trains or not taken or not later:
            continue
        # As many as are left of the epoch: what comes after it is rightly taken again.
        left = (loader["samples"] or 0) - len(taken)
        each = max(0, left // len(later))
        repeated = taken & {index for one in later for index in one.indices[:each]}
        if repeated:
            yield Seen(
                later[0].place,
                f"{len(repeated)} of the {len(taken)} samples that the epoch had taken before the "
                f"checkpoint were taken again after the resume",
            )
            return


def _half(passes: list[Pass]) -> list[int]:
    """Samples of the last pass that was saved in its midst, up to the save."""
    for one in reversed(passes):
        if one.trains and one.saved_at:
            return [i for batch in one.batches[: one.saved_at] for i in batch.get("indices", ())]
    return []
