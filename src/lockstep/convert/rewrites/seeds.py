"""Seed all processes alike for weights and splits, and differently for noise."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import statement_of
from lockstep.convert.work import Work
from lockstep.source.tree import walk

ORDER = 170
_GENERATORS = {
    "random": "torch.initial_seed()",
    "numpy.random": "torch.initial_seed() % 2**32",
}
_BRANCH = re.compile(r"\btorch\.(rand|randint|bernoulli)\(")


def rewrite(work: Work) -> None:
    """Give each process its own dropout and augmentation from where training begins."""
    script = work.script
    for node in script.order:
        if isinstance(node, cst.If | cst.IfExp) and _BRANCH.search(script.code(node.test)):
            work.note(node, "all processes draw alike, since they must take the same branch")
            return
    loop = _outermost(work)
    if loop is not None:
        work.need("torch")
        place = statement_of(script, loop)
        lines = [f"torch.manual_seed(torch.initial_seed() + {work.rank})", *_of_data_sets(work)]
        work.draft.before(place, work.several("\n".join(lines)))
        work.done("seeds", place, "from here on, each process draws its own noise")


def _of_data_sets(work: Work) -> list[str]:
    """Return the lines that seed generators which data sets draw from and training does not."""
    script, project = work.script, work.project
    used: dict[str, list[cst.Call]] = {module: [] for module in _GENERATORS}
    for call in script.calls:
        module, _, last = (project.name(script, call.func) or "").rpartition(".")
        if module in used and last != "seed":
            used[module].append(call)
    lines = []
    for module, calls in used.items():
        inside = [call for call in calls if _in_data_set(work, call)]
        if inside and not _trains_with(work, calls):
            spelled = script.code(inside[0].func).rpartition(".")[0]
            lines.append(f"{spelled}.seed({_GENERATORS[module]})")
    return lines


def _trains_with(work: Work, calls: list[cst.Call]) -> bool:
    """Return whether a training loop makes one of these calls, so that all must draw alike."""
    return any(
        work.project.reaches(where, loop.body, lambda _, node: node in calls)
        for where, loop, _ in work.parts.turns
    )


def _in_data_set(work: Work, call: cst.Call) -> bool:
    """Return whether a call draws for a single sample, and not for a data set being made."""
    owner, function = work.script.class_of(call), work.script.function_of(call)
    made = function is not None and function.name.value == "__init__"
    return owner is not None and not made and "def __getitem__" in work.script.code(owner)


def _outermost(work: Work) -> cst.CSTNode | None:
    """Return the outermost training loop that makes no models or data."""
    made = {model.made for model in work.parts.models}
    made |= {loader.call for loader in work.parts.training.loaders}
    found = [
        (len(work.project.loops_around(script, loop)), loop)
        for script, loop, _ in work.parts.turns
        if script is work.script and not any(part in made for part in walk(loop))
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None
