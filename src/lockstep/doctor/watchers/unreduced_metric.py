"""Ranks that evaluate their own parts and never combine the results."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lockstep.doctor.findings import Sighting
from lockstep.probes.trace import Rank, Trace, same_data

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.I)
_METRIC = re.compile(
    r"acc|top-?\d|\bf1|\bauc|\bmap\b|bleu|\bwer\b|perplexity|\bppl|\bval|\btest|\beval|correct",
    re.I,
)
_OWN = re.compile(r"\b(rank|gpu|device|process|proc|worker|cuda)[\s_:=#]*\d*\b", re.I)
_CLOCK = re.compile(
    r"\b(?:time|took|elapsed|eta|data|speed|throughput|mem\w*|duration)\b\W*[-+\d.:e()\s]+"
    r"|\d[\d.:]*\s*(?:s|ms|sec|secs|seconds|min|mins|minutes|h|hours|[kmg]i?b|\w+/s\w*)\b",
    re.I,
)
"""Text that differs between ranks by nature."""


def look(trace: Trace) -> Iterator[Sighting]:
    """Find evaluations without an exchange afterwards, and metrics that ranks print differently."""
    if trace.outcome.how != "finished":
        return
    reported = set()
    for passes in trace.together(trains=False):
        first = passes[0]
        if not all(one.evaluates for one in passes) or first.loader.number in reported:
            continue
        parts = [set(one.indices) for one in passes]
        apart = parts[0] != parts[1] or not same_data([one.loader for one in passes])
        if not all(parts) or not apart or any(one.exchanged for one in passes):
            continue
        reported.add(first.loader.number)
        yield Sighting(
            first.place,
            f"each rank evaluated its own part, {len(parts[0])} of {first.loader['samples']} "
            "samples on rank 0, and nothing was exchanged afterwards",
        )
    if not reported:
        yield from _said_apart(trace)


def _said_apart(trace: Trace) -> Iterator[Sighting]:
    """Find lines that all ranks print with different numbers."""
    lines = [_metrics(rank) for rank in trace.ranks]
    for place, texts in lines[0].items():
        others = [one.get(place, []) for one in lines[1:]]
        for number, text in enumerate(texts):
            same = [one[number] for one in others if number < len(one)]
            alike = {_NUMBER.sub("#", t) for t in same} == {_NUMBER.sub("#", text)}
            if len(same) < len(others) or not alike:
                continue
            if any(_CLOCK.sub("", t) != _CLOCK.sub("", text) for t in same):
                said = " / ".join(f"'{t.strip()}'" for t in (text, *same)[:2])
                yield Sighting(
                    place, f"the ranks print different values: {said[:160]}", certain=False
                )
                return


def _metrics(rank: Rank) -> dict[str, list[str]]:
    """Return lines with metrics by place, without those printed during a pass."""
    found: dict[str, list[str]] = {}
    inside = False
    for event in rank.of("said", "batch", "passed"):
        if event["kind"] != "said":
            inside = event["kind"] == "batch"
        elif not inside and _METRIC.search(event["text"]) and not _OWN.search(event["text"]):
            found.setdefault(event["place"], []).append(event["text"])
    return found
