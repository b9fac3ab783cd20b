"""Parameters differ between ranks, whatever the reason."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Seen
from lockstep.probes.trace import Trace


def seen(trace: Trace) -> Iterator[Seen]:
    """The first parameter, in the first step, whose bits differ between ranks."""
    for events in trace.looked("stepped"):
        shared = set.intersection(*(set(event["parameters"]) for event in events))
        apart = [
            name
            for name, value in events[0]["parameters"].items()
            if name in shared and any(event["parameters"][name] != value for event in events)
        ]
        if apart:
            step = next(s for s in trace.ranks[0].of("step") if s["step"] == events[0]["step"])
            yield Seen(
                step["place"],
                f"after step {events[0]['step'] + 1} the ranks have different parameters: "
                f"{len(apart)} of {len(shared)}, first {apart[0]}",
            )
            return
