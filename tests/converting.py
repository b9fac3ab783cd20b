"""Convert programs by running them, for tests."""

from __future__ import annotations

from pathlib import Path

from lockstep.convert import Options, refusal
from lockstep.convert.search import Proven, prove
from lockstep.convert.verify import Verdict
from lockstep.source.reading import read_script


def proven(
    path: Path,
    replicas: tuple[int, ...] = (1, 2),
    *,
    steps: int = 4,
    options: Options | None = None,
) -> Proven:
    """What becomes of a script, and the verdict on it."""
    script = read_script(path)
    given = options or Options()
    return prove(script, refusal(script), options=given, replicas=replicas, steps=steps)


def faults(verdict: Verdict) -> list[str]:
    """What speaks against a result; empty if it is proven."""
    if verdict.proved:
        return []
    apart = [one.text for one in verdict.comparisons if one.status != "equal"]
    said = [f"doctor: {finding.message}" for finding in verdict.findings]
    return [verdict.failure, *apart, *said, *(one.log for one in verdict.comparisons)]
