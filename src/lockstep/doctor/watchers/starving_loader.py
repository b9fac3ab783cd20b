"""Ranks that spend their time waiting for data."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace

MUCH = 0.5
"""Share of the time. A good loader stays below it, even on a shared machine."""
LONG = 0.02
"""Seconds per step. A busy machine causes shorter waits by itself."""
FEW = 8


def look(trace: Trace) -> Iterator[Sighting]:
    """Find training that spends most of its time waiting for the loader."""
    if trace.fake_data:
        return  # The real data and the real model may take another time.
    share, seconds, steps = trace.waiting()
    loader = next((one for one in trace.ranks[0].loaders if one.trains), None)
    if loader is not None and steps >= FEW and share > MUCH and seconds > LONG:
        spent = f"{share:.0%} of the time is spent waiting for data"
        yield Sighting(loader.place, f"{spent}, with {loader['workers']} worker(s)", certain=False)
