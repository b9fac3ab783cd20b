"""Evaluate every sample once, on one process, and add up the sums."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis import loop_lists
from lockstep.convert.analysis.batch_kinds import SUM
from lockstep.convert.analysis.blocks import body_around, calls_in, statement_of
from lockstep.convert.analysis.loop_effects import left_by, unclear
from lockstep.convert.analysis.loop_sums import (
    bound_in,
    form_of_tensor,
    is_zero,
    kind_of_sum,
    read_after,
)
from lockstep.convert.analysis.meters import kinds_of, read_last, reduction_lines
from lockstep.convert.dividing import dataset, is_shuffled, is_stream, whole
from lockstep.convert.work import Work
from lockstep.convert.wrapping import has_norm
from lockstep.source.loaders import Loader, Loop, iterated
from lockstep.source.tree import constant, dotted

ORDER = 80


def rewrite(work: Work) -> None:
    """Divide the evaluations that are understood; every process does the others in full."""
    obstacles = {loader: _obstacle(work, loader) for loader in work.parts.evaluated_on}
    _spread(obstacles)
    for loader, why in obstacles.items():
        if why is None:
            _divide(work, loader)
        else:
            work.note(
                loader.call,
                f"every process evaluates all samples, which is right but no faster: {why}",
            )
    divided = [loader for loader, why in obstacles.items() if why is None]
    loops = [loop for loader in divided for loop in loader.loops]
    loops += _on_training_data(work, obstacles)
    for loop in {loop.node: loop for loop in loops}.values():
        _bring_together(work, loop)


def _on_training_data(work: Work, obstacles: dict[Loader, str | None]) -> list[Loop]:
    """Return the loops that only evaluate on data which are divided for training."""
    whole_loops = {x.node for loader, why in obstacles.items() if why for x in loader.loops}
    found = []
    for loader in work.parts.trained_on:
        for loop in loader.loops:
            if loop.trains or loop.script is not work.script:
                continue
            if loop.node in whole_loops or _goes_elsewhere(work, loop) or _unclear(work, loop):
                work.note(
                    loop.node,
                    "this loop sees only the part of one process of "
                    f"{loader.name or 'the training data'}, and so does its result",
                )
            else:
                found.append(loop)
    return found


def _spread(obstacles: dict[Loader, str | None]) -> None:
    """Make a loop go through divided data only, or through none: spread obstacles over loops."""
    while True:
        whole_loops = {x.node for loader, why in obstacles.items() if why for x in loader.loops}
        caught = [
            loader
            for loader, why in obstacles.items()
            if why is None and any(loop.node in whole_loops for loop in loader.loops)
        ]
        if not caught:
            return
        for loader in caught:
            obstacles[loader] = "its loop also goes through data that are not divided"


def _obstacle(work: Work, loader: Loader) -> str | None:
    if {loader.script, *(loop.script for loop in loader.loops)} != {work.script}:
        return "the evaluation is in another file"
    others = [loader.given(name) for name in ("sampler", "batch_sampler", "drop_last")]
    if any(other is not None and constant(other) not in (False, None) for other in others):
        return "the loader has a sampler or drops samples"
    if loader.given("dataset") is None:
        return "lockstep cannot see its data set"
    stars = [a.value for a in loader.call.args if a.star]
    if any(not isinstance(star, cst.Name) for star in stars):
        return "lockstep cannot see its arguments"
    if is_stream(work, loader):
        return "its data are a stream"
    if has_norm(work) and not work.options.sync_batch_norm:
        # DDP sends the statistics of rank 0 before every forward, so all must take part.
        return "batch norm has the statistics of one process only"
    for loop in loader.loops:
        if any(x.trains for x in work.parts.training.loops if x.node is loop.node):
            return "its loop also trains"
        if _goes_elsewhere(work, loop):
            return f"lockstep cannot see all that line {work.line(loop.node)} iterates over"
        why = _unclear(work, loop)
        if why is not None:
            return why
    if (stars or is_shuffled(loader)) and not _by_sample(work, loader):
        return "its values belong to whole batches, which would change"
    return None


def _goes_elsewhere(work: Work, loop: Loop) -> bool:
    """Return whether a loop also goes through something that is not a loader."""
    known = {loader.call for loader in work.parts.training.loaders}
    source = iterated(work.project, loop.script, loop.node.iter)
    return any(o.call not in known for o in work.project.origins(loop.script, source))


def _unclear(work: Work, loop: Loop) -> str | None:
    """Return why the values of a loop cannot be reduced, or None if they can."""
    script, node = loop.script, loop.node
    for part, reason in unclear(work, script, node):
        return f"{reason} (line {work.line(part)})"
    left = left_by(work, script, node)
    if not left.names:
        return f"nothing is summed up in line {work.line(node)}"
    for one in left.sums:
        if not is_zero(one.start):
            return f"{one.name} does not begin at zero (line {work.line(one.added[0][0])})"
    for filled in left.lists:
        why = loop_lists.obstacle(work, script, node, filled)
        if why is not None:
            return f"{why} (line {work.line(filled.put[0][0])})"
    for meter in left.meters:
        last = read_last(script, node, meter)
        if last is not None:
            return f"the last value of {meter.name} is used (line {work.line(last)})"
    inside = bound_in(script, node)
    for place, name in read_after(script, node):
        if name in inside:
            return f"{name} is used after the loop (line {work.line(place)})"
    return None


def _divide(work: Work, loader: Loader) -> None:
    script, draft, rank, world = work.script, work.draft, work.rank, work.world
    call = loader.call
    data = dataset(work, loader)
    shuffle = loader.given("shuffle")
    stars = [a.value for a in call.args if a.star]
    part = f"range({rank}, len({data}), {world})"
    if not _by_sample(work, loader):
        work.argument(call, f"sampler={_whole_batches(work, loader, data)}")
    elif loader.given("batch_size") is None and stars:
        assert isinstance(stars[0], cst.Name)
        name = stars[0].value
        draft.before(
            statement_of(script, call),
            work.several(f"{name} = dict({name}, shuffle=False, sampler={part})"),
        )
    elif shuffle is not None and is_shuffled(loader):
        draft.replace(shuffle, f"{world} == 1")
        work.argument(call, f"sampler={part} if {world} > 1 else None")
    else:
        work.argument(call, f"sampler={part}")
    work.done("validation", call, "one process evaluates each sample, and none twice")


def _whole_batches(work: Work, loader: Loader, data: str) -> str:
    """Return the samples of a process as an expression: whole batches, dealt out in turn."""
    given = loader.given("batch_size")
    size = whole(work.script.code(given)) if given is not None else "1"
    each = "i" if not re.search(r"\bi\b", f"{data} {size}") else "index"
    batch = f"{each} // {size}" if size != "1" else each
    mine = f"{batch} % {work.world} == {work.rank}"
    return f"[{each} for {each} in range(len({data})) if {mine}]"


def _by_sample(work: Work, loader: Loader) -> bool:
    """Return whether all sums are over samples; otherwise whole batches must be dealt out."""
    for loop in loader.loops:
        left = left_by(work, loop.script, loop.node)
        if left.lists or _lengths(work, loop):
            return False
        if any(kind_of_sum(work, loop.script, one) != SUM for one in left.sums):
            return False
        for meter in left.meters:
            if any(kind != SUM for kind, _ in kinds_of(work, loop.script, meter).values()):
                return False
    return True


def _lengths(work: Work, loop: Loop) -> list[cst.Call]:
    """Return the calls `len(loader)` after the loop."""
    script = loop.script
    source = iterated(work.project, script, loop.node.iter)
    last = script.last(loop.node)
    return [
        call
        for call in calls_in(body_around(script, loop.node))
        if script.order[call] > last
        and dotted(call.func) == "len"
        and call.args
        and script.code(call.args[0].value) == script.code(source)
    ]


def _bring_together(work: Work, loop: Loop) -> None:
    script, node = loop.script, loop.node
    left = left_by(work, script, node)
    for one in left.sums:
        one.form = form_of_tensor(script, node, one)
    lines = [one.line(work) for one in left.sums]
    lengths = _lengths(work, loop)
    if lengths:
        count = work.fresh("batch_count")
        lines.append(f"{count} = {work.all_sum}({script.code(lengths[0])})")
        for call in lengths:
            work.draft.replace(call, count)
    if lines:
        work.need("all_sum")
    lines += [loop_lists.bring_together(work, script, one) for one in left.lists]
    every = [(meter, dict.fromkeys(meter.kind.sums, "")) for meter in left.meters]
    lines += reduction_lines(work, script, node, every)
    work.draft.after(statement_of(script, node), "\n".join(lines))
    summed = [one.name for one in left.sums] + [one.name for one in left.meters]
    if summed:
        work.done("validation", node, f"{', '.join(summed)}: added up over all processes")
    if left.lists:
        names = ", ".join(one.name for one in left.lists)
        work.done("validation", node, f"{names}: gathered from all processes, in their order")
