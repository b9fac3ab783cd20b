"""A validation loader that skips samples."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find evaluations that skipped samples because the last batch was dropped."""
    reported = set()
    # Another loader may evaluate the rest, as in torch's ImageNet example.
    rests = {p[0].loader["samples"] for p in trace.together(trains=False) if p[0].evaluates}
    for passes in trace.together(trains=False):
        first = passes[0]
        drops = first.loader["drop_last"] or first.loader["sampler_drops"]
        if not drops or not all(one.evaluates for one in passes) or first.loader.number in reported:
            continue
        met = {index for one in passes for index in one.indices}
        missing = (first.loader["samples"] or 0) - len(met)
        if met and missing > 0 and missing not in rests:
            reported.add(first.loader.number)
            reason = f"{missing} of the {first.loader['samples']} samples were never evaluated"
            yield Sighting(first.loader.place, reason)
