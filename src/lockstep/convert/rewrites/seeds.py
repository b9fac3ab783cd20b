"""Seeds: weights and splits are drawn alike by all processes, noise is not."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.work import Work
from lockstep.source.gradients import is_backward
from lockstep.source.tree import walk

_BRANCH = re.compile(r"\btorch\.(rand|randint|bernoulli)\(")
_ORDER = re.compile(r"\b(randperm|randint)\(")


def rewrite(work: Work) -> None:
    """From where training begins each process draws its own dropout and augmentation."""
    script = work.script
    for node in script.order:
        if isinstance(node, cst.If | cst.IfExp) and _BRANCH.search(script.code(node.test)):
            work.note(node, "all processes draw alike, as they must go the same way here")
            return
    for _, loop, _ in work.parts.turns:
        if any(isinstance(n, cst.Call) and _ORDER.search(script.code(n)) for n in walk(loop)):
            break
    for statement in work.parts.entry:
        if isinstance(statement, cst.FunctionDef | cst.ClassDef):
            continue
        if work.parts.project.reaches(script, statement, is_backward):
            if isinstance(statement, cst.If):
                statement = statement.body.body[0]
            work.need("torch")
            work.draft.before(
                statement,
                work.several(f"torch.manual_seed(torch.initial_seed() + {work.rank})"),
            )
            work.done("seeds", statement, "from here on each process draws noise of its own")
            return
