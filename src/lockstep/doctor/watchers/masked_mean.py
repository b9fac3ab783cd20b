"""Ranks average over different numbers of tokens, and DDP averages the averages."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting, by_rank
from lockstep.probes.trace import Trace, first_step


def look(trace: Trace) -> Iterator[Sighting]:
    """Report a gradient that differs where the ranks ignore different numbers of targets."""
    oracle = trace.oracle or {}
    counts = oracle.get("counted") or []
    if oracle.get("verdict") == "differs" and len(set(counts)) > 1 and not oracle.get("square"):
        yield Sighting(
            first_step(trace),
            f"the ranks count different numbers of targets ({by_rank(counts)}), and the gradient "
            f"differs from that of one process by {oracle['worst']:.1%}",
        )
