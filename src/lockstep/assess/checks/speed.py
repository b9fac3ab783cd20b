"""Check that it is as much faster than one device as the machine allows."""

from __future__ import annotations

from statistics import fmean

from lockstep.assess.evidence import Check, Evidence, Verdict, failed, passed, unjudged
from lockstep.assess.timing import outcome, typical
from lockstep.console import duration


def judge(evidence: Evidence) -> Verdict:
    """Compare the times of the submission, the given program and the reference."""
    times, share = evidence.times, evidence.exam.share
    if times is None:
        return unjudged("not judged: the grader times a program once all other checks pass")
    if not times.complete:
        return unjudged(
            "not judged: the grader's programs do not run here, or there were too few epochs"
        )
    words = (
        f"{times.gain:.2f} times as fast as one device ({duration(typical(times.submission))} for "
        f"an epoch); the reference reaches {times.possible:.2f} here, and "
        f"{times.asked(share):.2f} is required"
    )
    good = outcome(times, share)
    if good is None:
        return unjudged(
            f"not judged: this machine is busy, and programs wait {fmean(times.waited):.0%} of "
            "the time for a CPU. Grade again when the machine is idle"
        )
    return passed(words) if good else failed(words)


CHECK = Check(place=9, name="speed", title="Faster than one device", judge=judge)
