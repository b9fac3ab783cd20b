"""The accuracy, as the grader counts it, is reached in two epochs on end."""

from __future__ import annotations

from itertools import pairwise

from lockstep.assess.evidence import Evidence, Verdict, failed, passed, unjudged


def judge(evidence: Evidence) -> Verdict:
    """Recounted, never as printed."""
    target = evidence.exam.target
    found = {e: r.accuracy for e, r in sorted(evidence.recounts.items()) if r.right is not None}
    if not found:
        return unjudged("not judged: no weights could be loaded")
    for (a, first), (b, second) in pairwise(found.items()):
        if b == a + 1 and first >= target and second >= target:
            return passed(f"{first:.4f} and {second:.4f} in epochs {a} and {b}; {target} was asked")
    best = max(found, key=lambda epoch: found[epoch])
    return failed(
        f"{target} in two epochs on end was asked for; the best is {found[best]:.4f}, in epoch "
        f"{best} of {evidence.exam.epochs}"
    )
