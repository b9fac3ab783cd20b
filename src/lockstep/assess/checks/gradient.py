"""Check that all ranks together compute the gradient of one process on the same samples."""

from __future__ import annotations

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed, unjudged

SAME_DIRECTION = 0.9999


def judge(evidence: Evidence) -> Verdict:
    """Read what the doctor's gradient oracle found in the first step."""
    trace = evidence.result.trace
    oracle = trace.oracle if trace is not None else None
    if oracle is None:
        return unjudged("not judged: the grader saw no first step of several ranks")
    if oracle["verdict"] == "impossible":
        return failed(
            f"one process could not repeat the first step: {oracle['why']}. The program must also "
            "run as a single process, and take its batches from a DataLoader"
        )
    if oracle["verdict"] == "agrees":
        return passed(
            f"the first step, repeated by one process, differs by {oracle['worst']:.1e}, which is "
            "rounding"
        )
    ratio, cosine = oracle.get("ratio"), oracle.get("cosine")
    if ratio and cosine and cosine > SAME_DIRECTION and abs(ratio - 1) > 0.01:
        return failed(
            f"the gradient of the first step has the right direction and {ratio:.3g} times the "
            "length that one process finds on the same samples: it must be the mean over the ranks"
        )
    return failed(
        f"the gradient of the first step differs from that of one process on the same samples by "
        f"{oracle['worst']:.2g} of its length; rounding explains only {oracle['tolerance']:.2g}: "
        "the ranks do not learn from each other's samples"
    )


CHECK = Check(place=5, name="gradient", title="The gradient of one process", judge=judge)
