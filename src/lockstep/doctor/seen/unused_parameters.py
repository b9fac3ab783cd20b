"""Parameters that got no gradient, which DDP waits for."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """The first step leaves parameters without gradients, and DDP was not told to expect it."""
    wraps = list(trace.ranks[0].of("wrapped"))
    if any(wrap["find_unused"] or wrap["static_graph"] for wrap in wraps):
        return
    first = next((step for step in trace.ranks[0].of("step") if step["synced"]), None)
    unused = first.get("unused") if first is not None else None
    if wraps and unused:
        more = f" and {len(unused) - 1} more" * (len(unused) > 1)
        yield Seen(
            wraps[0]["place"],
            f"{unused[0]}{more} got no gradient: DDP waits for it and fails in the next step",
        )
