"""Seeds: weights and splits are drawn alike by all processes, noise is not."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.blocks import statement_of
from lockstep.convert.work import Work
from lockstep.source.tree import walk

_BRANCH = re.compile(r"\btorch\.(rand|randint|bernoulli)\(")


def rewrite(work: Work) -> None:
    """From where training begins each process draws its own dropout and augmentation."""
    script = work.script
    for node in script.order:
        if isinstance(node, cst.If | cst.IfExp) and _BRANCH.search(script.code(node.test)):
            work.note(node, "all processes draw alike, as they must go the same way here")
            return
    loop = _outermost(work)
    if loop is not None:
        work.need("torch")
        place = statement_of(script, loop)
        work.draft.before(
            place, work.several(f"torch.manual_seed(torch.initial_seed() + {work.rank})")
        )
        work.done("seeds", place, "from here on each process draws noise of its own")


def _outermost(work: Work) -> cst.CSTNode | None:
    """The outermost loop that trains, and makes no models or data."""
    made = {model.made for model in work.parts.models}
    made |= {loader.call for loader in work.parts.training.loaders}
    found = [
        (len(work.parts.project.loops_around(script, loop)), loop)
        for script, loop, _ in work.parts.turns
        if script is work.script and not any(part in made for part in walk(loop))
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None
