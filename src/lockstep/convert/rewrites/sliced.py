"""Batches that are cut by hand: each process takes every n-th row of them."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.blocks import statement_of
from lockstep.convert.rewrites.sampler import EVEN, whole
from lockstep.convert.work import Work
from lockstep.source.gradients import without_gradient
from lockstep.source.tree import dotted, walk, walk_shallow
from lockstep.source.turns import kind_of

_BATCH = re.compile(r"batch|\bbsz?\b|\bmb\b", re.I)


def rewrite(work: Work) -> None:
    """Loops without a DataLoader."""
    if work.parts.trained_on:
        return
    script = work.script
    split = False
    for where, loop, _ in work.parts.turns:
        if where is script and isinstance(loop, cst.For):
            split |= _rows(work, loop)
    split = split or _columns(work) or _draws(work)
    if split:
        work.split = True


def _rows(work: Work, loop: cst.For) -> bool:
    """`x[i:i + batch]` in `for i in range(0, n, batch)`."""
    script = work.script
    count = next(
        (c for c in walk(loop.iter) if isinstance(c, cst.Call) and dotted(c.func) == "range"), None
    )
    if count is None or len(count.args) != 3 or not _BATCH.search(script.code(count.args[2].value)):
        return False
    size = count.args[2].value
    targets = [n.value for n in walk(loop.target) if isinstance(n, cst.Name)]
    found = False
    for part in walk_shallow(loop.body):
        if (
            isinstance(part, cst.Slice)
            and part.lower is not None
            and part.upper is not None
            and part.step is None
            and dotted(part.lower) in targets
        ):
            work.draft.insert(part.lower, f" + {work.rank}", behind=True)
            work.draft.insert(part.upper, f":{work.world}", behind=True)
            work.done("sliced", part, "each process takes every n-th row of the batch")
            found = True
    if found:
        _common_order(work)
        work.draft.before(
            statement_of(script, loop), EVEN.format(size=whole(script.code(size)), world=work.world)
        )
    return found


def _common_order(work: Work) -> None:
    """All processes shuffle alike."""
    script = work.script
    for call in script.calls:
        name = work.parts.project.name(script, call.func)
        assign = script.parents.get(call)
        if name == "torch.randperm" and isinstance(assign, cst.Assign):
            order = script.code(assign.targets[0].target)
            work.draft.after(
                statement_of(script, call), work.several(f"dist.broadcast({order}, 0)")
            )
            work.done("sliced", call, "all processes take the order that the first one drew")


def _columns(work: Work) -> bool:
    """`data = batchify(text, batch_size)`: each process takes every n-th sequence."""
    script, project = work.script, work.parts.project
    found = False
    sizes: set[str] = set()
    cut: set[cst.CSTNode] = set()
    for _, loop, acts in work.parts.turns:
        if not any(act.kind == "backward" and not act.loops for act in acts):
            continue
        for part in walk_shallow(loop.body):
            if not isinstance(part, cst.Name):
                continue
            bound = script.scope_of(part).find(part.value)
            for binding in bound[1] if bound else ():
                call = binding.value
                if not isinstance(call, cst.Call) or binding.node in cut or binding.index:
                    continue
                made = project.definition(script, call.func)
                given = [a.value for a in call.args if _BATCH.search(script.code(a.value))]
                body = made[0].code(made[1]) if made else ""
                if not given or not re.search(r"\.(view|reshape)\(", body):
                    continue
                cut.add(binding.node)
                turned = re.search(r"\.t\(\)|\.T\b|transpose", body)
                rows = f"{work.rank}::{work.world}"
                index = f"[:, {rows}].contiguous()" if turned else f"[{rows}]"
                statement, size = statement_of(script, binding.node), script.code(given[0])
                work.draft.after(statement, f"{part.value} = {part.value}{index}")
                work.draft.before(statement, EVEN.format(size=whole(size), world=work.world))
                work.done(
                    "sliced", statement, "each process takes every n-th sequence of the batch"
                )
                sizes.add(size)
                found = True
    if found:
        _shares(work, sizes)
    return found


def _shares(work: Work, sizes: set[str]) -> None:
    """The same batch size, where training asks for it."""
    script = work.script
    for where, loop, _ in work.parts.turns:
        function = script.function_of(loop)
        if where is not script or function is None:
            continue
        for part in walk_shallow(function.body):
            parent = script.parents.get(part)
            if isinstance(parent, cst.Arg) and script.code(part) in sizes:
                work.draft.replace(part, f"{script.code(part)} // {work.world}")
                work.done("sliced", part, "the batch of one process")


def _draws(work: Work) -> bool:
    """`torch.randint(n, (batch_size,))`: each process draws its part of the batch."""
    script = work.script
    found = False
    for call in script.calls:
        name = work.parts.project.name(script, call.func) or ""
        if name not in (
            "torch.randint",
            "numpy.random.randint",
            "torch.multinomial",
            "numpy.random.choice",
        ):
            continue
        for arg in call.args:
            for part in walk(arg.value):
                if isinstance(part, cst.Name | cst.Attribute) and _BATCH.search(script.code(part)):
                    parent = script.parents.get(part)
                    if isinstance(parent, cst.Attribute):
                        continue
                    work.draft.replace(part, f"{script.code(part)} // {work.world}")
                    work.draft.before(
                        statement_of(script, call),
                        EVEN.format(size=whole(script.code(part)), world=work.world),
                    )
                    work.done("sliced", call, "each process draws its part of the batch")
                    found = True
    if found:
        _values(work)
    return found


def _values(work: Work) -> None:
    """Evaluation by random batches: the mean of what all processes found."""
    script = work.script
    for call in script.named_last("item"):
        loops = [p for p in script.above(call) if isinstance(p, cst.For)]
        if (
            loops
            and without_gradient(script, call)
            and not any(
                kind_of(script, c) == "backward"
                for c in script.calls
                if script.inside(c, loops[-1])
            )
        ):
            work.need("all_sum")
            work.draft.replace(call, f"{work.all_sum}({script.code(call)}) / {work.world}")
            work.done("sliced", call, "the mean over all processes")
