"""Explain what is missing in a step, from the doctor's findings and observations."""

from __future__ import annotations

from typing import Any

from lockstep.labs.lab2_ddp.observe import Observed, observe
from lockstep.labs.lab2_ddp.requirements import prepared_once, two_ranks
from lockstep.labs.lab2_ddp.steps import Step, steps

SHOWN = 30
"""How many lines about the end of a program to show."""


def check_step(step: Step, text: str) -> list[str]:
    """Run a program on two ranks, and return what is wrong with it after a step.

    Earlier steps must still hold; the subjects of later steps do not count.
    """
    return judge(step, observe(text, prepared=step.prepared, whole=step.whole))


def judge(step: Step, seen: Observed) -> list[str]:
    """Return what is wrong with an observed program after a step."""
    if seen.ended == "unread":
        return seen.ending
    said = [] if seen.ended == "finished" else ["\n".join(seen.ending[:SHOWN])]
    if seen.ended == "late" or not seen.facts:
        return said
    if said and seen.facts["ranks"] < 2:
        return said
    number = steps().index(step)
    done = [one for one in steps()[: number + 1] if not one.optional or one is step]
    asked = frozenset[str]().union(*(one.removes for one in done))
    later = frozenset[str]().union(*(one.removes for one in steps())) - asked
    for finding in seen.findings:
        if finding["code"] not in later:
            said.append(
                _formatted(finding, finding["code"] in step.removes, finding["code"] in asked)
            )
    if seen.ended == "finished" and (alone := list(two_ranks(seen))):
        return alone
    for one in done:
        for need in one.needs:
            # After an early end, only this requirement can be judged, and it may be the reason.
            if seen.ended == "finished" or need is prepared_once:
                said += [_earlier(one, step) + message for message in need(seen)]
    return said


def _formatted(finding: dict[str, Any], meant: bool, asked: bool) -> str:
    """Format a finding, with the step that it belongs to."""
    about = "" if meant else " This belongs to an earlier step." if asked else " This is new."
    name = f"{finding['code']} {finding['rule']}"
    line = f"Line {finding['line']}: " if finding["line"] > 1 else ""
    return f"{line}{finding['message']}. {finding['advice']}{about} ({name})"


def _earlier(one: Step, step: Step) -> str:
    return "" if one is step else f"From the earlier step “{one.title}”: "
