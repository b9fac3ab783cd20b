"""Parameters that differ between ranks, for any reason."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Event, Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find the first step and parameter whose bits differ between ranks."""
    if trace.joins and len({len(rank.steps) for rank in trace.ranks}) > 1:
        return  # Without equal steps, the ranks cannot be compared.
    for events in trace.looked("stepped"):
        shared = set.intersection(*(set(event["parameters"]) for event in events))
        apart = [
            name
            for name, value in events[0]["parameters"].items()
            if name in shared and any(event["parameters"][name] != value for event in events)
        ]
        if apart:
            step = next(s for s in trace.ranks[0].of("step") if _turn(s) == _turn(events[0]))
            yield Sighting(
                step["place"],
                f"after step {events[0]['step'] + 1} the ranks have different parameters: "
                f"{len(apart)} of {len(shared)}, first {apart[0]}",
            )
            return


def _turn(event: Event) -> tuple[int, int]:
    return event["optimizer"], event["step"]
