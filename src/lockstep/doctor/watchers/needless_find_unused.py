"""DDP searches for unused parameters in every step although there are none."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Report the wrap if each rank used every parameter in all checked steps."""
    looked = [e for e in trace.of("step") if "unused" in e and e["synced"]]
    steps = len({step["step"] for step in looked})
    finds = {wrap["place"] for wrap in trace.ranks[0].of("wrapped") if wrap["find_unused"]}
    for place in sorted(finds) if looked else ():
        if not any(place in step["unused"] or step["left_out"] for step in looked):
            reason = f"every rank used every parameter in all {steps} checked steps"
            yield Sighting(place, reason, certain=False)
