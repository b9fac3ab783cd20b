"""Ranks that draw the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Event, Trace


def look(trace: Trace) -> Iterator[Sighting]:
    """Find equal generator states on two ranks before they draw numbers."""
    drawn = [{(e["worker"], e["number"], e["dataset"]): e for e in r.draws} for r in trace.ranks]
    trained = [loader.place for loader in trace.ranks[0].loaders if loader.trains]
    for key, one in drawn[0].items() if trained else ():
        for other in drawn[1:]:
            if key not in other or (other[key]["index"] == one["index"] and not one["streams"]):
                continue  # an evaluation of all samples on every rank
            theirs = other[key]["states"]
            same = [name for name, state in one["states"].items() if theirs.get(name) == state]
            if same:
                yield Sighting(
                    trained[0],
                    f"the ranks draw the same numbers from {' and '.join(same)} while they load "
                    "data: augmentation is the same on each",
                    certain=False,
                )
                return
    yield from _in_the_step(trace)


def _in_the_step(trace: Trace) -> Iterator[Sighting]:
    """Find dropout and noise whose generator state is equal on two ranks and changes in a step."""
    pairs = [_states(rank.events) for rank in trace.ranks]
    for step, (before, after, place) in pairs[0].items():
        if before != after and any(step in o and o[step][:2] == (before, after) for o in pairs[1:]):
            yield Sighting(
                place,
                f"in step {step + 1} the ranks draw the same numbers: dropout or noise is the "
                "same on each",
                certain=False,
            )
            return


def _states(events: list[Event]) -> dict[int, tuple[int, int, str]]:
    found, before = {}, None
    for event in events:
        if event["kind"] == "batch" and event.get("random"):
            before = event["random"]["torch"]
        elif event["kind"] == "step" and event.get("random") and before is not None:
            found[event["step"]] = (before, event["random"]["torch"], event["place"])
            before = None
    return found
