"""Ranks spend their time waiting for data."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace

MUCH = 0.5
"""Share of the time. Beside others on one machine, a loader that is good enough has less."""
LONG = 0.02
"""Seconds of a step. What is less, a machine that does other things as well makes by itself."""
FEW = 8


def seen(trace: Trace) -> Iterator[Seen]:
    """Training in which most of the time goes to waiting for the loader."""
    if trace.fake_data:
        return  # The real data take another time, and so may the real model.
    share, seconds, steps = trace.waiting()
    loader = next((one for one in trace.ranks[0].loaders if one.trains), None)
    if loader is not None and steps >= FEW and share > MUCH and seconds > LONG:
        yield Seen(
            loader.place,
            f"{share:.0%} of the time is spent waiting for data, with {loader['workers']} "
            "worker(s)",
            certain=False,
        )
