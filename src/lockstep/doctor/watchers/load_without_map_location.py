"""Ranks that load a checkpoint onto the device that saved it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find loads without map_location on ranks other than 0, in a script that uses GPUs."""
    if not trace.on_gpus:
        return
    # The CPU stands in for the GPUs: a checkpoint of this run holds CPU tensors.
    saved = {event["path"] for event in trace.of("wrote")}
    for rank in trace.ranks[1:]:
        for event in rank.of("loaded"):
            on_gpu = any("cuda" in location for location in event["locations"])
            if not event["mapped"] and event["place"] and (on_gpu or event["path"] in saved):
                name = Path(event["path"]).name or "a checkpoint"
                reason = f"rank {rank.number} loads {name} to the GPU that it was saved from"
                yield Sighting(event["place"], reason, certain=False)
                return
