"""Add up over all processes what training sums up to show it or to decide by it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.analysis.batch_kinds import MEAN, SUM, UNKNOWN, kind_without_mask
from lockstep.convert.analysis.blocks import assigned_to, receiver, statement_of
from lockstep.convert.analysis.loop_effects import left_by
from lockstep.convert.analysis.loop_lists import Filled, is_on_host
from lockstep.convert.analysis.loop_sums import (
    COUNT,
    is_read_later,
    is_zero,
    kind_of_sum,
    read_after,
    sums_of,
)
from lockstep.convert.analysis.meters import Meter, kinds_of, reduction_lines
from lockstep.convert.work import Work
from lockstep.source.gradients import is_backward
from lockstep.source.loss import loss_of
from lockstep.source.name_uses import targets
from lockstep.source.script import Script
from lockstep.source.tree import walk_shallow

ORDER = 90


def rewrite(work: Work) -> None:
    """Add reductions after every training loop over batches."""
    for script, loop, acts in work.parts.turns:
        direct = any(act.kind == "backward" and not act.loops for act in acts)
        if script is not work.script or not direct or not isinstance(loop, cst.For):
            continue
        mean = f" / {work.world}"
        lines, names = [], []
        left = left_by(work, script, loop)
        for one in left.sums:
            kind = kind_of_sum(work, script, one)
            if kind in (SUM, MEAN) and is_zero(one.start):
                lines.append(one.line(work, mean if kind == MEAN else ""))
                names.append(one.name)
            elif kind != COUNT:
                _note_part(work, one.added[0][0], one.name)
        for name, kind in _last_values(work, script, loop):
            lines.append(f"{name} = {work.all_sum}({name}){mean if kind == MEAN else ''}")
            names.append(name)
        for name, kind in _losses(work, script, loop):
            value = f"{work.all_sum}(value){mean if kind == MEAN else ''}"
            lines.append(f"{name} = [{value} for value in {name}]")
            names.append(name)
        if lines:
            work.need("all_sum")
        lists = [filled for filled in left.lists if filled.name not in names]
        for filled in _samples(work, script, loop, lists):
            work.need("all_gather")
            parts = f"{work.all_gather}([{filled.name}])"
            lines.append(f"{filled.name} = [value for part in {parts} for value in part]")
            names.append(filled.name)
        meters = list(_meters(work, script, left.meters))
        lines += reduction_lines(work, script, loop, meters)
        names += [meter.name for meter, _ in meters]
        if lines:
            work.draft.after(statement_of(script, loop), "\n".join(lines))
            work.done("metrics", loop, f"{', '.join(names)}: reduced over all processes")


def _note_part(work: Work, node: cst.CSTNode, name: str) -> None:
    work.note(node, f"{name} covers the samples of one process only")


def _meters(
    work: Work, script: Script, meters: list[Meter]
) -> Iterator[tuple[Meter, dict[str, str]]]:
    """Yield meters with a factor per sum; all processes take as many steps."""
    for meter in meters:
        found = kinds_of(work, script, meter)
        if any(kind == UNKNOWN and not weighted for kind, weighted in found.values()):
            _note_part(work, meter.calls[0], meter.name)
            continue
        added = {total: kind for total, (kind, _) in found.items() if kind != COUNT}
        mean = f" / {work.world}"
        yield meter, {total: mean if kind == MEAN else "" for total, kind in added.items()}


def _samples(work: Work, script: Script, loop: cst.For, lists: list[Filled]) -> Iterator[Filled]:
    """Yield lists with one value per sample, whose order does not follow the data anyway."""
    after = "".join(script.code(script.statement_of(node)) for node, _ in read_after(script, loop))
    for filled in lists:
        joined = re.search(rf"\b(cat|concatenate|concat|hstack|vstack)\(\[?{filled.name}\b", after)
        by_sample = joined or all(many for _, _, many in filled.put)
        on_host = all(is_on_host(work, script, value) for _, value, _ in filled.put)
        if by_sample and on_host:
            yield filled
        else:
            _note_part(work, filled.put[0][0], filled.name)


def _last_values(work: Work, script: Script, loop: cst.For) -> Iterator[tuple[str, str]]:
    """Yield the loss of the last batch, if code after the loop reads it."""
    parts = list(walk_shallow(loop.body))
    places = [place for p in parts if isinstance(p, cst.Assign) for place in assigned_to(p)]
    assigned = set().union(*map(targets, places))
    backwards = [p for p in parts if isinstance(p, cst.Call) and is_backward(script, p)]
    learned = {script.code(loss) for p in backwards if (loss := loss_of(p)) is not None}
    summed = sums_of(script, loop)
    for node, name in read_after(script, loop):
        if name not in assigned or name in summed:
            continue
        parent = script.parents.get(node)
        taken = isinstance(parent, cst.Attribute) and parent.attr.value == "item"
        if not taken and name not in learned:
            continue
        kind = kind_without_mask(work, script, node)
        if kind in (MEAN, SUM):
            assigned.discard(name)
            yield name, kind


def _losses(work: Work, script: Script, loop: cst.For) -> Iterator[tuple[str, str]]:
    """Yield lists of losses that are made for this loop."""
    for part in walk_shallow(loop.body):
        kept = receiver(part, "append")
        if not isinstance(part, cst.Call) or not isinstance(kept, cst.Name) or len(part.args) != 1:
            continue
        name = kept.value
        bound = script.scope_of(part).bindings.get(name, [])
        block = script.parents.get(statement_of(script, loop))
        empty = all(isinstance(b.value, cst.List) and not b.value.elements for b in bound)
        # The list is made before the loop, or emptied after it.
        fresh = empty and any(
            script.parents.get(statement_of(script, b.node)) is block for b in bound
        )
        kind = kind_without_mask(work, script, part.args[0].value)
        if fresh and kind in (MEAN, SUM) and is_read_later(script, loop, name):
            yield name, kind
