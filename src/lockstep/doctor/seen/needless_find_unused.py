"""DDP looks for unused parameters in every step, and there are none."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """Every parameter got a gradient in all steps that were looked at, on all ranks."""
    wraps = list(trace.ranks[0].of("wrapped"))
    looked = [e for rank in trace.ranks for e in rank.of("step") if "unused" in e and e["synced"]]
    finds = [wrap for wrap in wraps if wrap["find_unused"]]
    if finds and looked and not any(step["unused"] for step in looked):
        steps = len({step["step"] for step in looked})
        yield Seen(
            finds[0]["place"],
            f"every parameter got a gradient in all {steps} steps that were looked at",
            certain=False,
        )
