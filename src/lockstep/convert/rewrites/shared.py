"""Training data whose order is drawn elsewhere: the first process draws, each takes its part."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import statement_of
from lockstep.convert.work import Work
from lockstep.errors import ConvertError
from lockstep.source.loaders import Loader, iterated
from lockstep.source.tree import dotted


def by_its_sampler(work: Work, sampler: cst.BaseExpression) -> None:
    """`DataLoader(data, sampler=WeightedRandomSampler(...))`."""
    work.need("Share")
    work.draft.insert(sampler, f"{work.share}(")
    work.draft.insert(sampler, ")", behind=True)
    work.done("sampler", sampler, "the first process draws, and each takes its part of every batch")


def remade(work: Work, loader: Loader) -> None:
    """A loader that another file makes is made anew, for a part of every batch."""
    where, line = loader.script.path.name, loader.script.place(loader.call).start.line
    loops = list(work.parts.loops_of(loader))
    other = next((loop for loop in loops if loop.script is not work.script), None)
    if other is not None:
        raise ConvertError(
            f"The training loop is in {other.script.path.name}, line "
            f"{other.script.place(other.node).start.line}. Convert that file, or move it here."
        )
    sources = [iterated(work.parts.project, work.script, loop.node.iter) for loop in loops]
    held = dict(found for source in sources if (found := _held(work, source)) is not None)
    if not held:
        raise ConvertError(
            f"The training data are loaded in {where}, line {line}, and it could not be seen which "
            "variable of this script holds the loader. Make the loader in this script."
        )
    work.need("divided", "Share", "DataLoader")
    for name, statement in held.items():
        work.draft.after(statement, f"{name} = {work.divided}({name})")
        work.done(
            "sampler",
            statement,
            f"the loader of {where} is made anew: each process takes its part of every batch",
        )


def _held(work: Work, node: cst.CSTNode, depth: int = 6) -> tuple[str, cst.CSTNode] | None:
    """The variable that a call gave what is gone through here, and the statement that did."""
    script, name = work.script, dotted(node)
    found = script.scope_of(node).find(name) if name is not None else None
    if name is None or found is None or not depth:
        return None
    for binding in found[1]:
        if binding.kind == "assign" and isinstance(binding.value, cst.Call):
            return name, statement_of(script, binding.node)
        inner = [binding.value] if binding.kind == "assign" else []
        if binding.kind == "parameter":
            function = script.function_of(binding.node)
            given = work.parts.project.arguments(script, function, name) if function else []
            inner = [value for where, value in given if where is script]
        for value in inner:
            held = _held(work, value, depth - 1) if value is not None else None
            if held is not None:
                return held
    return None
