"""DDP looks for unused parameters in every step, and there are none."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """Every parameter got a gradient in all steps that were looked at, on all ranks."""
    looked = [e for rank in trace.ranks for e in rank.of("step") if "unused" in e and e["synced"]]
    steps = len({step["step"] for step in looked})
    finds = {wrap["place"] for wrap in trace.ranks[0].of("wrapped") if wrap["find_unused"]}
    for place in sorted(finds) if looked else ():
        if any(place in step["unused"] for step in looked):
            continue
        yield Seen(
            place,
            f"every parameter got a gradient in all {steps} steps that were looked at",
            certain=False,
        )
