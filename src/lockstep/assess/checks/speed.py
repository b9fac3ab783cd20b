"""It is faster than the program on one device by as much as the machine allows."""

from __future__ import annotations

from statistics import fmean

from lockstep.assess.evidence import Evidence, Verdict, failed, passed, unjudged
from lockstep.assess.timing import outcome, typical
from lockstep.console import duration


def judge(evidence: Evidence) -> Verdict:
    """From the times of all three programs."""
    times, share = evidence.times, evidence.exam.share
    if times is None:
        return unjudged("not judged: a program is timed once all other checks pass")
    if not times.complete:
        return unjudged(
            "not judged: the grader's own programs do not run here, or there were too few epochs"
        )
    words = (
        f"{times.gain:.2f} times as fast as one device ({duration(typical(times.submission))} for "
        f"an epoch); a program that is right gains {times.possible:.2f} here, and "
        f"{times.asked(share):.2f} is asked for"
    )
    good = outcome(times, share)
    if good is None:
        return unjudged(
            f"not judged: this machine does other things as well, and programs wait "
            f"{fmean(times.waited):.0%} of the time for a CPU. Grade again when it is quiet"
        )
    return passed(words) if good else failed(words)
