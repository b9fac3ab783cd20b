"""Check that the recounted accuracy reaches the target in two consecutive epochs."""

from __future__ import annotations

from itertools import pairwise

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed, unjudged


def judge(evidence: Evidence) -> Verdict:
    """Compare the grader's accuracies, not the printed ones, with the target."""
    target = evidence.exam.target
    found = {e: r.accuracy for e, r in sorted(evidence.recounts.items()) if r.right is not None}
    if not found:
        return unjudged("not judged: no weights could be loaded")
    for (a, first), (b, second) in pairwise(found.items()):
        if b == a + 1 and first >= target and second >= target:
            return passed(
                f"{first:.4f} and {second:.4f} in epochs {a} and {b}; {target} is required"
            )
    best = max(found, key=lambda epoch: found[epoch])
    return failed(
        f"it must reach {target} in two consecutive epochs; its best is {found[best]:.4f}, in "
        f"epoch {best} of {evidence.exam.epochs}"
    )


CHECK = Check(place=8, name="target", title="Target reached", judge=judge)
