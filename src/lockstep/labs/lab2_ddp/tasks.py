"""The steps as tasks of the page: the learner changes the program, and the doctor judges it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lockstep.labs.lab2_ddp.step_check import check_step
from lockstep.labs.lab2_ddp.steps import Step, steps
from lockstep.labs.lab2_ddp.texts import program
from lockstep.labs.shared.task import Task

NEXT = "Choose the next step above. It continues with this program."
LAST = "Your program now runs on any number of GPUs. Compare it with the converter's below."


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
