"""Each step as a task of the page: the learner changes the program, the doctor judges it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lockstep.labs.lab2_ddp.step_check import check_step
from lockstep.labs.lab2_ddp.steps import Step, steps
from lockstep.labs.lab2_ddp.texts import program
from lockstep.labs.shared.task import Task

NEXT = "Choose the next step above: it goes on with this program."
LAST = "This is a program for any number of GPUs. Below it is compared with the converter's."


def task(step: Step, starter: str | None = None) -> Task:
    """A step; it begins with the learner's own program, or with ours."""
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
    """The learner's own program from the last step that was passed before this one."""
    for one in reversed(steps()[: steps().index(step)]):
        known = tried.get(one.name, {})
        if known.get("passed"):
            return str(known["text"])
    return None


def latest(tried: Mapping[str, Any]) -> str:
    """The learner's program as it is after the last step that was passed; else the first one."""
    done = [tried[one.name]["text"] for one in steps() if tried.get(one.name, {}).get("passed")]
    return str(done[-1]) if done else program()
