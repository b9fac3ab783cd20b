"""It is faster than the program on one device by as much as the machine allows."""

from __future__ import annotations

from lockstep.assess.evidence import Evidence, Verdict, failed, passed, unjudged
from lockstep.assess.speeds import typical
from lockstep.console import duration


def judge(evidence: Evidence) -> Verdict:
    """From the times of all three programs."""
    times, asked = evidence.times, evidence.exam.share
    if times is None or not times.complete:
        return unjudged("not judged: a program is timed once all other checks pass")
    words = (
        f"{times.gain:.2f} times as fast as one device ({duration(typical(times.submission))} for "
        f"an epoch); a program that is right gains {times.possible:.2f} here, and "
        f"{asked * times.possible:.2f} is asked for"
    )
    return passed(words) if times.share >= asked else failed(words)
