"""Backward passes without a forward pass through DDP."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find steps on a wrapped model's parameters whose gradients DDP never saw."""
    for step in trace.ranks[0].of("step"):
        if step.get("wrapped") and step["backwards"] and not step["forwards"]:
            yield Sighting(
                step["place"],
                f"step {step['step'] + 1} came after {step['backwards']} backward pass(es) and no "
                "forward through DDP: the ranks did not exchange gradients",
            )
            return
