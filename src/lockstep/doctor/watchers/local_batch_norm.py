"""Batch norm over the few samples of one rank."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.doctor.rules.local_batch_norm import SMALL
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find batch-norm layers in a wrapped model whose ranks get few samples per batch."""
    steps = [step for step in trace.ranks[0].steps if step["batches"]]
    if not steps or not trace.on_gpus:
        return
    samples = max(step["samples"] // step["batches"] for step in steps)
    for wrap in trace.ranks[0].of("wrapped"):
        if wrap["norms"] and 0 < samples <= SMALL:
            few = f"only the {samples} samples of their own rank"
            reason = f"{wrap['norms']} layers of batch norm see {few}"
            yield Sighting(wrap["place"], reason, certain=False)
            return
