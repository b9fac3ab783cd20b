"""The message of a failed test: where the runs diverge, the doctor's findings, the next command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lockstep.convert.verify.comparison import UNKNOWN
from lockstep.convert.verify.runs import Run
from lockstep.convert.verify.verdict import EQUAL, Comparison
from lockstep.doctor import Finding
from lockstep.doctor.facts import frames
from lockstep.doctor.findings import near
from lockstep.doctor.output import text

WORDS = (
    ("the original's", "that of 1 replica"),
    ("in the original", "on 1 replica"),
    ("than the original", "than 1 replica"),
)
"""The reasons of `convert` speak of an original. Here it is the run on one replica."""


def named(script: Path, arguments: Sequence[str]) -> str:
    """Return the command that a test runs."""
    return shlex.join([str(script), *arguments])


def replicas(number: int) -> str:
    """Return a number of replicas in words.

    >>> replicas(1), replicas(2)
    ('1 replica', '2 replicas')
    """
    return f"{number} replica{'s' * (number != 1)}"


def differs(name: str, found: Comparison, findings: Sequence[Finding], then: str = "") -> str:
    """Say where a run diverges from that on one replica, and what the doctor found in it."""
    where = replicas(found.replicas)
    if found.status == EQUAL:
        lines = [f"{name}: {where} train as 1 does, but the doctor found a bug that both have."]
    else:
        lines = [f"{name}: {where} do not train as 1 does. {_first(found)}"]
    reason = "" if found.reason == UNKNOWN else f"{found.reason} {found.advice}".strip()
    for old, new in WORDS:
        reason = reason.replace(old, new)
    if reason:
        lines.append(reason[0].upper() + reason[1:])
    if findings:
        lines += ["The doctor found in this run:", *map(_shown, findings)]
    elif found.status != EQUAL:
        lines.append("The doctor found no known bug in this run.")
    if then:
        lines.append(f"To see more, type: {then}")
    return "\n".join(lines)


def _shown(finding: Finding) -> str:
    return text(replace(finding, path=near(finding.path)))


def _first(found: Comparison) -> str:
    first = found.first
    if first is None:
        return "It failed."
    said = f"They differ after step {first.step}, in {first.what}"
    if first.difference is None:
        return f"{said}."
    if not first.bound:
        return f"{said}: by {first.difference:.1e}, where not a bit may differ."
    return f"{said}: by {first.difference:.1e}, where rounding explains {first.bound:.1e}."


def failed(name: str, number: int, run: Run) -> str:
    """Say how a run ended that cannot be compared."""
    outcome = run.trace.outcome
    lines = [f"{name} cannot be compared on {replicas(number)}: {run.failure}"]
    if outcome.how == "crashed":
        lines += [f"    {line}" for line in run.log.splitlines()]
    numbers = {rank.pid: rank.number for rank in run.ranks}
    for one in outcome.stuck:
        lines.append(f"rank {numbers.get(one.pid, '?')}: {one.doing}")
        lines += [f"    {frame}" for frame in frames(one.stack)]
    # Without the scratch folder, which no longer exists when a person reads this.
    return re.sub(r"\S+-scratch/", "", "\n".join(lines))
