"""Parameters that got no gradient, although DDP waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find parameters without gradients in the first step of a DDP that does not expect them."""
    wraps = trace.ranks[0].of("wrapped")
    reported = {wrap["place"] for wrap in wraps if wrap["find_unused"] or wrap["static_graph"]}
    first = next((step for step in trace.ranks[0].of("step") if step["synced"]), {})
    for place, names in (first.get("unused") or {}).items():
        if place not in reported:
            who = names[0] + f" and {len(names) - 1} more" * (len(names) > 1)
            yield Sighting(
                place, f"{who} got no gradient: DDP waits for it and fails in the next step"
            )
