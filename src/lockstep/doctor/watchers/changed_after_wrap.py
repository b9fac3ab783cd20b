"""Parameters that DDP does not know, because they were added after the wrap."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find trained parameters in a wrapped model that DDP does not reduce."""
    found: dict[str, list[str]] = {}
    for step in trace.ranks[0].of("step"):
        found |= step.get("strangers") or {}
    for place, names in found.items():
        yield Sighting(
            place,
            f"{len(names)} parameter(s) were replaced or unfrozen after the wrap, first "
            f"{names[0]}: DDP does not reduce their gradients",
        )
