"""Learning rates that differ between ranks, or a schedule that runs too fast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lockstep.doctor.findings import Sighting, by_rank
from lockstep.probes.trace import Trace

FEW = 3
"""The smallest number of steps in which the scheduler stepped once per rank."""


def look(trace: Trace) -> Iterator[Sighting]:
    """Compare learning rates between ranks, and count scheduler steps per optimizer step."""
    yield from _apart(trace)
    calls = Counter(
        (e["scheduler"], e["step"], e["place"])
        for e in trace.ranks[0].of("scheduled")
        if not e["per_rank"]
    )
    often: Counter[tuple[int, str]] = Counter()
    # A scheduler that is stepped after each of several batches has another reason.
    batches = {step["step"] + 1: step["batches"] for step in trace.ranks[0].steps}
    for (scheduler, step, place), count in calls.items():
        often[scheduler, place] += count == trace.size and batches.get(step, 0) < count
    for (_scheduler, place), steps in often.items():
        if steps >= FEW:
            yield Sighting(
                place,
                f"the scheduler is stepped {trace.size} times in each step, once per rank: the "
                f"schedule ends after 1/{trace.size} of the training",
            )


def _apart(trace: Trace) -> Iterator[Sighting]:
    """Find the first scheduler metric, or the first rate, that differs between ranks."""
    metrics = [[e for e in rank.of("scheduled") if e["metric"] is not None] for rank in trace.ranks]
    for same in zip(*metrics, strict=False):
        if len({event["metric"] for event in same}) > 1:
            values = by_rank(f"{event['metric']:.6g}" for event in same)
            yield Sighting(
                same[0]["place"],
                f"the scheduler is given a value that differs between ranks ({values}), so "
                "their learning rates will differ",
            )
            return
    where = next((e["place"] for e in trace.ranks[0].of("scheduled")), "")
    for steps in zip(*(rank.steps for rank in trace.ranks), strict=False):
        if any(step["rates"] != steps[0]["rates"] for step in steps):
            rates = by_rank(f"{step['rates'][0]:g}" for step in steps)
            yield Sighting(
                where or steps[0]["place"],
                f"in step {steps[0]['step'] + 1} the ranks have different learning rates: {rates}",
            )
            return
