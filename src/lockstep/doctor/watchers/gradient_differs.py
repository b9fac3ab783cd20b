"""A gradient that differs from that of one process on the same batch."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.doctor.watchers.misplaced_clipping import apart
from lockstep.probes.trace import Trace, first_step


def look(trace: Trace) -> Iterator[Sighting]:
    """Report the verdict of the gradient oracle."""
    oracle = trace.oracle or {}
    first = next(trace.looked("step"), None)
    if oracle.get("verdict") != "differs" or first is None:
        return
    if any(event["gradients"] != first[0]["gradients"] for event in first) or any(apart(trace)):
        return  # If the ranks differ from each other, another rule reports it.
    ratio, cosine = oracle.get("ratio"), oracle.get("cosine")
    factor = ""
    if ratio is not None and cosine is not None and cosine > 0.9999 and abs(ratio - 1) > 0.01:
        factor = f"; it has the same direction and {ratio:.3g} times the length"
    yield Sighting(
        first_step(trace),
        f"in the first step the gradient on {trace.size} ranks is not that of one process on the "
        f"same samples: {oracle['first']} differs by {(oracle['difference'] or 1.0):.1%}, rounding "
        f"explains {oracle['tolerance']:.2g}{factor}",
    )
