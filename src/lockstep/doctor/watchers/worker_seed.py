"""Data workers of one rank that draw the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find equal generator states in two workers before they draw numbers."""
    for rank in trace.ranks:
        first: dict[tuple[str, int], int] = {}
        for event in rank.draws:
            for name, state in event["states"].items():
                worker = first.setdefault((name, state), event["worker"])
                if event["worker"] is None or worker == event["worker"]:
                    continue
                place = next((x.place for x in rank.loaders if x["workers"]), "")
                yield Sighting(
                    place,
                    f"workers {worker} and {event['worker']} of rank {rank.number} draw the same "
                    f"numbers from {name}: augmentation is the same in both",
                )
                return
