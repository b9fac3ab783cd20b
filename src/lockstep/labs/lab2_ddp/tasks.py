"""The steps as tasks of the page: the learner changes the program, and the doctor judges it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lockstep.labs.lab2_ddp.files import program
from lockstep.labs.lab2_ddp.observe import Observed, observe
from lockstep.labs.lab2_ddp.requirements import prepared_once, two_ranks
from lockstep.labs.lab2_ddp.steps import Step, steps
from lockstep.labs.shared.task import Task

NEXT = "Choose the next step above. It continues with this program."
LAST = "Your program now runs on any number of GPUs. Compare it with the converter's below."
SHOWN = 30
"""How many lines about the end of a program to show."""


def task(step: Step, starter: str | None = None) -> Task:
    """Return a step as a task that starts with the given program, or with ours."""
    number = steps().index(step) + 1
    return Task(
        name=step.name,
        asks=f"### Step {number} of {len(steps())}: {step.title}\n\n**{step.task}**\n\n{step.why}",
        starter=starter or step.before,
        answer=step.after,
        explains=LAST if step.whole else NEXT,
        judge=partial(check_step, step),
    )


def passed_before(step: Step, tried: Mapping[str, Any]) -> str | None:
    """Return the learner's program of the last passed step before this one."""
    for one in reversed(steps()[: steps().index(step)]):
        known = tried.get(one.name, {})
        if known.get("passed"):
            return str(known["text"])
    return None


def latest(tried: Mapping[str, Any]) -> str:
    """Return the learner's program of the last passed step, or the original program."""
    done = [tried[one.name]["text"] for one in steps() if tried.get(one.name, {}).get("passed")]
    return str(done[-1]) if done else program()


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
        earlier = "" if one is step else f"From the earlier step “{one.title}”: "
        for need in one.needs:
            # After an early end, only this requirement can be judged, and it may be the reason.
            if seen.ended == "finished" or need is prepared_once:
                said += [earlier + message for message in need(seen)]
    return said


def _formatted(finding: dict[str, Any], meant: bool, asked: bool) -> str:
    """Format a finding, with the step that it belongs to."""
    about = "" if meant else " This belongs to an earlier step." if asked else " This is new."
    name = f"{finding['code']} {finding['rule']}"
    line = f"Line {finding['line']}: " if finding["line"] > 1 else ""
    return f"{line}{finding['message']}. {finding['advice']}{about} ({name})"
