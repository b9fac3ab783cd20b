"""A distributed sampler repeats samples of a validation set to make the parts equal."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """Evaluations in which some samples came twice."""
    told = set()
    for passes in trace.together(trains=False):
        first = passes[0]
        if not all(one.evaluates for one in passes) or first.loader.number in told:
            continue
        indices = [index for one in passes for index in one.indices]
        if first.loader["parts"] != trace.size or not indices:
            continue
        twice = len(indices) - len(set(indices))
        if twice and len(set(indices)) == first.loader["samples"]:
            told.add(first.loader.number)
            gathered = any("gather" in name for one in passes for name in one.exchanged)
            yield Seen(
                first.loader.place,
                f"{twice} of the {first.loader['samples']} samples were evaluated twice",
                # What was gathered may be cut to its true length.
                certain=not gathered,
            )
