"""Ranks that take part in different collectives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest

from lockstep.doctor.findings import Sighting, near_place
from lockstep.probes.trace import Event, Rank, Trace

_IN_MODEL = ("forward at ", "backward at ")
_EXCHANGE = re.compile(r"gloo|nccl|connection|timed? ?out|DistBackend|collective|store", re.I)


def look(trace: Trace) -> Iterator[Sighting]:
    """Find the first collective, DDP's included, that differs between the ranks."""
    found = next(_by_calls(trace), None) or next(_by_stacks(trace), None)
    if found is not None:
        yield found


def _by_calls(trace: Trace) -> Iterator[Sighting]:
    lists = [[e for e in rank.of("collective") if e["group"] == trace.size] for rank in trace.ranks]
    for same in zip_longest(*lists):
        there = [(n, event) for n, event in enumerate(same) if event is not None]
        number, first = there[0]
        other = next(((n, e) for n, e in there if _kind(e) != _kind(first)), None)
        if other is not None:
            yield Sighting(
                first["place"],
                f"rank {number} calls {first['name']} here while rank {other[0]} calls "
                f"{other[1]['name']} at {near_place(other[1]['place'])}",
            )
            return
        if len(there) < len(same):
            absent = next(n for n, event in enumerate(same) if event is None)
            if trace.outcome.how != "finished" and not _failed(trace.ranks[absent]):
                reason = f"rank {number} calls {first['name']} and waits; rank {absent} never does"
                yield Sighting(first["place"], reason)
            return


def _by_stacks(trace: Trace) -> Iterator[Sighting]:
    """Find a rank that hung inside the wrapped model while another rank had left the loop."""
    ranks = {rank.pid: rank for rank in trace.ranks}
    hung = [(ranks[one.pid], one.doing) for one in trace.outcome.stuck if one.pid in ranks]
    waiting = [(rank, doing) for rank, doing in hung if doing.startswith(_IN_MODEL)]
    others = [(rank, doing) for rank, doing in hung if not doing.startswith(_IN_MODEL)]
    if trace.outcome.how == "hung" and waiting and others:
        (rank, doing), (other, elsewhere) = waiting[0], others[0]
        what, _, place = elsewhere.partition(" at ")
        yield Sighting(
            doing.partition(" at ")[2],
            f"rank {rank.number} waits here, inside the wrapped model, for rank {other.number}, "
            f"which is elsewhere: {what} at {near_place(place)}",
        )


def _failed(rank: Rank) -> bool:
    """Return whether a rank failed by its own error, not because another rank was missing."""
    return any(not _EXCHANGE.search(event["error"]) for event in rank.of("crashed"))


def _kind(event: Event) -> tuple[str, str]:
    # Lists of objects have different sizes on each rank.
    return event["name"], event["what"] if event["name"] in ("all_reduce", "broadcast") else ""
