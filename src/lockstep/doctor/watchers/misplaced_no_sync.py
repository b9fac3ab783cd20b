"""A step whose gradients were not all added over the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find steps after no_sync alone, and steps whose gradients differ between the ranks."""
    for step in trace.ranks[0].steps:
        if step["unsynced"] and not step["synced"]:
            yield Sighting(
                step["place"],
                f"step {step['step'] + 1} came after {step['unsynced']} backward pass(es), all "
                "under no_sync: each rank stepped on its own gradient",
            )
            return
    for events in trace.looked("step"):
        first = events[0]
        if first["unsynced"] and any(e["gradients"] != first["gradients"] for e in events):
            yield Sighting(
                first["place"],
                f"in step {first['step'] + 1} the ranks have different gradients: the last "
                "backward pass before the step was under no_sync",
            )
            return
