"""Parameters that got no gradient, although DDP waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """Find parameters without gradients in the first step of a DDP that does not expect them."""
    wraps = trace.ranks[0].of("wrapped")
    told = {wrap["place"] for wrap in wraps if wrap["find_unused"] or wrap["static_graph"]}
    first = next((step for step in trace.ranks[0].of("step") if step["synced"]), {})
    for place, names in (first.get("unused") or {}).items():
        if place not in told:
            who = names[0] + f" and {len(names) - 1} more" * (len(names) > 1)
            yield Seen(place, f"{who} got no gradient: DDP waits for it and fails in the next step")
