"""A distributed sampler repeats samples of a validation set to make the parts equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lockstep.doctor.findings import Seen
from lockstep.doctor.rules.padded_validation import ONCE
from lockstep.probes.trace import Trace
from lockstep.source.script import lines_of

AROUND = 15
"""Lines before and after a gather in which the script may cut what it got."""


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
            gathered = {name for one in passes for name in one.exchanged if "gather" in name}
            if gathered and (any("object" in name for name in gathered) or _cuts(trace)):
                continue
            yield Seen(
                first.loader.place,
                f"{twice} of the {first.loader['samples']} samples were evaluated twice",
                # What was gathered may be cut to its true length.
                certain=not gathered,
            )


def _cuts(trace: Trace) -> bool:
    """Whether the code around a gather takes out what is double.

    Objects are most often put together by the name of each sample.
    """
    for event in trace.ranks[0].of("collective"):
        path, _, line = event["place"].rpartition(":")
        if "gather" not in event["name"] or not Path(path).is_file():
            continue
        lines = lines_of(Path(path).read_text(errors="replace"))
        if ONCE.search("\n".join(lines[max(0, int(line) - AROUND) : int(line) + AROUND])):
            return True
    return False
