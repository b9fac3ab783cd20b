"""A file that several ranks write."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Event, Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find checkpoints and other files that more than one rank wrote."""
    writers: dict[str, dict[int, Event]] = {}
    for rank in trace.ranks:
        for event in rank.of("wrote"):
            kept = writers.setdefault(event["path"], {})
            if rank.number not in kept or event["how"] == "saved":
                kept[rank.number] = event
    reported = set()
    for path, events in writers.items():
        if len(events) < 2:
            continue
        first = events[min(events)]
        ours = any(event["how"] == "saved" for event in events.values())
        if first["place"] in reported or (not ours and _harmless(path, events)):
            continue
        reported.add(first["place"])
        yield Sighting(
            first["place"],
            f"{Path(path).name} is written by ranks {', '.join(map(str, sorted(events)))}",
            certain=ours,
        )


def _harmless(path: str, events: dict[int, Event]) -> bool:
    """Return whether a file is meant to be shared: a log that all append to, a lock, a cache."""
    appended = all(event["how"] == "appended" for event in events.values())
    shared = path.endswith(".lock") or "/.cache/" in path
    return appended or shared or path.startswith(tempfile.gettempdir())
