"""Steps that reduce the gradients more often than needed."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find steps over several batches that reduced the gradients after each batch."""
    for step in trace.ranks[0].steps:
        if step["batches"] > 1 and step["synced"] > 1 and step["backwards"] == step["batches"]:
            yield Sighting(
                step["place"],
                f"step {step['step'] + 1} took {step['batches']} batches and added the gradients "
                f"over the ranks {step['synced']} times; once is enough",
            )
            return
