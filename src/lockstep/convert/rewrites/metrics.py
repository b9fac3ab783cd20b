"""What training sums up to be shown or decided on: added up over all processes."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.convert.blocks import statement_of
from lockstep.convert.rewrites.loss import MASKED, MEAN, SUM, kinds
from lockstep.convert.rewrites.validation import (
    COUNT,
    is_read_later,
    kind_of_sum,
    read_after,
    sums_of,
)
from lockstep.convert.work import Work
from lockstep.source.gradients import is_backward
from lockstep.source.loss import loss_of
from lockstep.source.mentions import targets
from lockstep.source.script import Script
from lockstep.source.tree import walk_shallow


def rewrite(work: Work) -> None:
    """After every loop over batches that trains."""
    for script, loop, acts in work.parts.turns:
        direct = any(act.kind == "backward" and not act.loops for act in acts)
        if script is not work.script or not direct or not isinstance(loop, cst.For):
            continue
        lines, names = [], []
        for name, part in sums_of(loop).items():
            kind = kind_of_sum(work, script, part)
            if kind == COUNT or not is_read_later(script, loop, name):
                continue
            if kind not in (SUM, MEAN):
                work.note(part, f"{name} is that of one process")
                continue
            mean = f" / {work.world}" if kind == MEAN else ""
            lines.append(f"{name} = {work.all_sum}({name}){mean}")
            names.append(name)
        for name, kind in _last_values(work, script, loop):
            mean = f" / {work.world}" if kind == MEAN else ""
            lines.append(f"{name} = {work.all_sum}({name}){mean}")
            names.append(name)
        for name, kind in _lists(work, script, loop):
            mean = f" / {work.world}" if kind == MEAN else ""
            lines.append(f"{name} = [{work.all_sum}(value){mean} for value in {name}]")
            names.append(name)
        if lines:
            work.need("all_sum")
            work.draft.after(statement_of(script, loop), "\n".join(lines))
            work.done("metrics", loop, f"{', '.join(names)}: that of all processes, not of one")


def _last_values(work: Work, script: Script, loop: cst.For) -> Iterator[tuple[str, str]]:
    """The loss of the last batch, where it is read after the loop."""
    assigned = {
        name
        for part in walk_shallow(loop.body)
        if isinstance(part, cst.Assign)
        for target in part.targets
        for name in targets(target.target)
    }
    learned = {
        script.code(loss)
        for part in walk_shallow(loop.body)
        if isinstance(part, cst.Call) and is_backward(script, part)
        if (loss := loss_of(part)) is not None
    }
    summed = sums_of(loop)
    for node, name in read_after(script, loop):
        if name not in assigned or name in summed:
            continue
        parent = script.parents.get(node)
        taken = isinstance(parent, cst.Attribute) and parent.attr.value == "item"
        if not taken and name not in learned:
            continue
        found = kinds(work, script, node, 0, set()) - {MASKED}
        if found in ({MEAN}, {SUM}):
            assigned.discard(name)
            yield name, found.pop()


def _lists(work: Work, script: Script, loop: cst.For) -> Iterator[tuple[str, str]]:
    """Losses that are collected in a list made for this loop."""
    for part in walk_shallow(loop.body):
        if not (
            isinstance(part, cst.Call)
            and isinstance(part.func, cst.Attribute)
            and part.func.attr.value == "append"
            and isinstance(part.func.value, cst.Name)
            and len(part.args) == 1
        ):
            continue
        name = part.func.value.value
        bound = script.scope_of(part).bindings.get(name, [])
        fresh = (
            len(bound) == 1
            and isinstance(bound[0].value, cst.List)
            and not bound[0].value.elements
            and script.parents.get(statement_of(script, bound[0].node))
            is script.parents.get(statement_of(script, loop))
        )
        found = kinds(work, script, part.args[0].value, 0, set()) - {MASKED}
        if fresh and found in ({MEAN}, {SUM}) and is_read_later(script, loop, name):
            yield name, found.pop()
