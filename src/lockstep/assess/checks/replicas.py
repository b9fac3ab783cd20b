"""After every step all ranks have the same weights, to the bit."""

from __future__ import annotations

from lockstep.assess.evidence import Evidence, Verdict, failed, passed, unjudged


def judge(evidence: Evidence) -> Verdict:
    """The first step after which they differ."""
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
                f"the replicas part {when}: their weights differ, and each goes its own way. "
                "Gradients must be averaged over the ranks in every step, from equal weights on: "
                "wrap the model in DistributedDataParallel, and call the wrapper"
            )
    return passed(f"equal bits on {len(sums)} ranks after each of {steps[0]} steps")


def _apart_from_the_start(sums: list[dict[tuple[int, str], int]]) -> bool:
    return len({one.get((0, "before")) for one in sums}) > 1
