"""Gradients of several batches are added, and their losses were not divided."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """Steps over several batches, each with the whole of its loss."""
    for step in trace.ranks[0].steps:
        factors = step.get("factors") or []
        several = step["batches"] > 1 and step["backwards"] == step["batches"] == len(factors)
        # Of two loaders the losses are added, not averaged.
        if several and step["loaders"] == 1 and all(factor == 1.0 for factor in factors):
            yield Seen(
                step["place"],
                f"step {step['step'] + 1} adds the gradients of {step['batches']} batches "
                "whose losses "
                f"were not divided: it is {step['batches']} times as long",
                certain=False,
            )
            return
