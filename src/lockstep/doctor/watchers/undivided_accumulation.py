"""Steps that add the gradients of several batches without dividing their losses."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find steps over several batches that each use their whole loss."""
    for step in trace.ranks[0].steps:
        factors = step.get("factors") or []
        several = step["batches"] > 1 and step["backwards"] == step["batches"] == len(factors)
        # The losses of two loaders are added, not averaged.
        if several and step["loaders"] == 1 and all(factor == 1.0 for factor in factors):
            yield Sighting(
                step["place"],
                f"step {step['step'] + 1} adds the gradients of {step['batches']} batches whose "
                f"losses were not divided: the gradient is {step['batches']} times too large",
                certain=False,
            )
            return
