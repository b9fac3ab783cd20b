"""A loss that compares the samples of a batch with each other sees only one rank's samples."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace, first_step


def look(trace: Trace) -> Iterator[Sighting]:
    """Report a gradient that differs where the loss is over a square of samples."""
    oracle = trace.oracle or {}
    if oracle.get("verdict") == "differs" and oracle.get("square"):
        yield Sighting(
            first_step(trace),
            f"each rank compares its own {oracle['square']} samples only: the gradient differs "
            f"from that of one process by {oracle['worst']:.1%}",
        )
