"""A distributed sampler that repeats validation samples to make the parts equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lockstep.doctor.findings import Sighting
from lockstep.doctor.rules.padded_validation import ONCE
from lockstep.probes.trace import Trace
from lockstep.source.script import lines_of

AROUND = 15
"""How many lines around a gather are searched for code that cuts the result."""


def look(trace: Trace) -> Iterator[Sighting]:
    """Find evaluations in which some samples came twice."""
    reported = set()
    for passes in trace.together(trains=False):
        first = passes[0]
        if not all(one.evaluates for one in passes) or first.loader.number in reported:
            continue
        indices = [index for one in passes for index in one.indices]
        if first.loader["parts"] != trace.size or not indices:
            continue
        twice = len(indices) - len(set(indices))
        if twice and len(set(indices)) == first.loader["samples"]:
            reported.add(first.loader.number)
            gathered = {name for one in passes for name in one.exchanged if "gather" in name}
            if gathered and (any("object" in name for name in gathered) or _cuts(trace)):
                continue
            yield Sighting(
                first.loader.place,
                f"{twice} of the {first.loader['samples']} samples were evaluated twice",
                # The script may cut the gathered result to its true length.
                certain=not gathered,
            )


def _cuts(trace: Trace) -> bool:
    """Return whether the code around a gather removes duplicates.

    Gathered objects are usually merged by the name of each sample.
    """
    for event in trace.ranks[0].of("collective"):
        path, _, line = event["place"].rpartition(":")
        if "gather" not in event["name"] or not Path(path).is_file():
            continue
        lines = lines_of(Path(path).read_text(errors="replace"))
        if ONCE.search("\n".join(lines[max(0, int(line) - AROUND) : int(line) + AROUND])):
            return True
    return False
