"""A shuffling distributed sampler that uses the same order in two passes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace

FEW = 8
"""The smallest number of samples to compare: the order of fewer may agree by chance."""


def look(trace: Trace) -> Iterator[Sighting]:
    """Find two passes of rank 0 over one training loader in the same order."""
    for loader in trace.ranks[0].loaders:
        if not loader["parts"] or not loader["shuffles"]:
            continue
        for before, after in pairwise(one for one in loader.passes if one.trains):
            length = min(len(before.indices), len(after.indices))
            if length >= FEW and before.indices[:length] == after.indices[:length]:
                yield Sighting(
                    after.place,
                    f"passes {before.turn + 1} and {after.turn + 1} took the first {length} "
                    "samples of each rank in the same order",
                )
                break
