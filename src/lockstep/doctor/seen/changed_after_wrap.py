"""Parameters that DDP does not know of, because they came after the wrap."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """Names of trained parameters in a wrapped model that DDP does not reduce."""
    for step in trace.ranks[0].of("step"):
        if step.get("strangers"):
            names = step["strangers"]
            wrap = next(trace.ranks[0].of("wrapped"))
            yield Seen(
                wrap["place"],
                f"{len(names)} parameter(s) were replaced or unfrozen after the wrap, first "
                f"{names[0]}: "
                f"DDP does not reduce their gradients",
            )
            return
