"""Check that after every step all ranks have the same weights, to the bit."""

from __future__ import annotations

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed, unjudged


def judge(evidence: Evidence) -> Verdict:
    """Find the first step after which the weights differ."""
    sums = evidence.watched.sums
    if evidence.watched.group < 2 or not all(sums):
        return unjudged("not judged: fewer than two ranks took steps together")
    steps = [max(step for step, _ in one) for one in sums]
    if len(set(steps)) > 1:
        return failed(f"the ranks took different numbers of steps: {', '.join(map(str, steps))}")
    for step in range(1, steps[0] + 1):
        if len({one.get((step, "after")) for one in sums}) > 1:
            when = "before the first step" if _apart_from_the_start(sums) else f"in step {step}"
            return failed(
                f"the replicas diverge {when}: their weights differ from then on. They must start "
                "with equal weights and average their gradients in every step: wrap the model in "
                "DistributedDataParallel, and call the wrapper"
            )
    return passed(f"equal bits on {len(sums)} ranks after each of {steps[0]} steps")


CHECK = Check(place=4, name="replicas", title="Replicas stay equal", judge=judge)


def _apart_from_the_start(sums: list[dict[tuple[int, str], int]]) -> bool:
    return len({one.get((0, "before")) for one in sums}) > 1
