"""Evaluation: every sample is looked at once, by one process, and the sums are added up."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.blocks import statement_of
from lockstep.convert.rewrites.loss import MASKED, SUM, UNKNOWN, kinds
from lockstep.convert.rewrites.sampler import dataset, is_stream
from lockstep.convert.work import Work
from lockstep.source.loaders import Loader, Loop, iterated
from lockstep.source.mentions import targets
from lockstep.source.script import Script
from lockstep.source.tree import constant, dotted, walk, walk_shallow

PER_SAMPLE = re.compile(r"\.size\(0\)|\.shape\[0\]|\blen\(|\.sum\(\)|\.size\(\)\[0\]|batch_size")
COUNT = "count"


def rewrite(work: Work) -> None:
    """Divide what is understood; leave the rest, which every process then does in full."""
    for loader in work.parts.evaluated_on:
        why = _obstacle(work, loader)
        if why is not None:
            work.note(
                loader.call,
                f"every process evaluates all of it, which is right but no faster: {why}",
            )
            continue
        _divide(work, loader)


def _obstacle(work: Work, loader: Loader) -> str | None:
    if loader.script is not work.script or any(
        loop.script is not work.script for loop in loader.loops
    ):
        return "it is done in another file"
    if any(loader.given(name) is not None for name in ("sampler", "batch_sampler", "drop_last")):
        return "the loader has a sampler or drops samples"
    if loader.given("dataset") is None:
        return "its data set is not in sight"
    stars = [a.value for a in loader.call.args if a.star]
    if any(not isinstance(star, cst.Name) for star in stars):
        return "its arguments are not in sight"
    if is_stream(work, loader):
        return "its data are a stream"
    shuffle, size = loader.given("shuffle"), loader.given("batch_size")
    shuffled = shuffle is not None and constant(shuffle) is not False
    if not _by_sample(work, loader) and (stars or shuffled or size is None):
        return "its means are over batches"
    if size is not None and next(a for a in loader.call.args if a.value is size).keyword is None:
        return "its batch size is given without a name"
    for loop in loader.loops:
        others = {x.loader for x in work.parts.training.loops if x.node is loop.node}
        if len(others) > 1 and any(x.trains for x in others):
            return "its loop is also that of training"
        why = _unclear(work, loop)
        if why is not None:
            return why
    return None


def _unclear(work: Work, loop: Loop) -> str | None:
    """What keeps the sums of a loop from being added up; None if nothing does."""
    node = loop.node
    sums = sums_of(loop.node)
    if not sums:
        return f"nothing is summed up in line {work.line(node)}"
    counted = targets(node.target)
    for part in walk_shallow(node.body):
        if isinstance(part, cst.Break):
            return f"its loop may end early (line {work.line(part)})"
        if (
            isinstance(part, cst.Call)
            and isinstance(part.func, cst.Attribute)
            and part.func.attr.value in ("append", "extend", "update", "add")
        ):
            return f"it collects values (line {work.line(part)})"
    inside = {
        name
        for part in walk_shallow(node.body)
        if isinstance(part, cst.Assign)
        for target in part.targets
        for name in targets(target.target)
    }
    fixed = set(sums)
    for name_node, name in read_after(loop.script, loop.node):
        if name in counted or (name in inside and name not in fixed):
            return f"{name} is used after the loop (line {work.line(name_node)})"
    return None


def sums_of(loop: cst.For) -> dict[str, cst.AugAssign]:
    """The names that a loop adds to, first come first."""
    found: dict[str, cst.AugAssign] = {}
    for part in walk_shallow(loop.body):
        if isinstance(part, cst.AugAssign) and isinstance(part.operator, cst.AddAssign):
            name = dotted(part.target)
            if name is not None:
                found.setdefault(name, part)
    return found


def read_after(script: Script, node: cst.For) -> list[tuple[cst.CSTNode, str]]:
    """Names that are read after the loop, in its function."""
    function = script.function_of(node)
    last = max(script.order[n] for n in walk(node))
    found = []
    stored: set[str] = set()
    for part in walk_shallow(function.body if function else script.tree):
        if script.order[part] <= last:
            continue
        if isinstance(part, cst.For) and script.inside(part, function or script.tree):
            stored |= targets(part.target)
        if isinstance(part, cst.Assign):
            for target in part.targets:
                stored |= targets(target.target)
        name = dotted(part) if isinstance(part, cst.Name) else None
        parent = script.parents.get(part)
        if (
            isinstance(parent, cst.AssignTarget | cst.Attribute)
            and getattr(parent, "attr", None) is part
        ):
            continue
        if isinstance(parent, cst.Arg) and parent.keyword is part:
            continue
        if name is not None and name not in stored:
            found.append((part, name))
    return found


def _divide(work: Work, loader: Loader) -> None:
    script, draft, rank, world = work.script, work.draft, work.rank, work.world
    call = loader.call
    data = dataset(work, loader)
    size, shuffle = loader.given("batch_size"), loader.given("shuffle")
    stars = [a.value for a in call.args if a.star]
    part = f"range({rank}, len({data}), {world})"
    if not _by_sample(work, loader):
        assert size is not None
        work.need("BatchSampler")
        batches = f"BatchSampler(range(len({data})), {script.code(size)}, drop_last=False)"
        stem = re.sub(r"_?loader", "", loader.name.rsplit(".", 1)[-1])
        name = work.fresh(f"{stem}_batches".lstrip("_"))
        draft.before(statement_of(script, call), f"{name} = list({batches})[{rank}::{world}]")
        draft.replace(next(a for a in call.args if a.value is size), f"batch_sampler={name}")
    elif size is None and stars:
        assert isinstance(stars[0], cst.Name)
        name = stars[0].value
        draft.before(
            statement_of(script, call),
            work.several(f"{name} = dict({name}, shuffle=False, sampler={part})"),
        )
    elif shuffle is not None and constant(shuffle) is not False:
        draft.replace(shuffle, f"{world} == 1")
        work.argument(call, f"sampler={part} if {world} > 1 else None")
    else:
        work.argument(call, f"sampler={part}")
    work.done("validation", call, "every sample is evaluated by one process, and none twice")
    for loop in loader.loops:
        _add_up(work, loop)


def _by_sample(work: Work, loader: Loader) -> bool:
    """Whether all sums are over samples; else whole batches are dealt out, as they were."""
    return all(
        kind_of_sum(work, loop.script, part) == SUM
        for loop in loader.loops
        for part in sums_of(loop.node).values()
    ) and not any(_lengths(work, loop) for loop in loader.loops)


def kind_of_sum(work: Work, script: Script, part: cst.AugAssign) -> str:
    """What a loop adds up: sums over samples, means of batches, or what nobody knows."""
    if constant(part.value) is not ...:
        return COUNT
    if PER_SAMPLE.search(script.code(part.value)):
        return SUM
    found = kinds(work, script, part.value, 0, set()) - {MASKED}
    return found.pop() if len(found) == 1 else UNKNOWN


def _lengths(work: Work, loop: Loop) -> list[cst.Call]:
    """`len(loader)` after the loop."""
    script = loop.script
    source = iterated(work.parts.project, script, loop.node.iter)
    function = script.function_of(loop.node)
    last = max(script.order[n] for n in walk(loop.node))
    found = []
    for part in walk_shallow(function.body if function else script.tree):
        if (
            isinstance(part, cst.Call)
            and script.order[part] > last
            and dotted(part.func) == "len"
            and part.args
            and script.code(part.args[0].value) == script.code(source)
        ):
            found.append(part)
    return found


def _add_up(work: Work, loop: Loop) -> None:
    work.need("all_sum")
    names = [n for n in sums_of(loop.node) if is_read_later(loop.script, loop.node, n)]
    lines = [f"{name} = {work.all_sum}({name})" for name in names]
    lengths = _lengths(work, loop)
    if lengths:
        count = work.fresh("batch_count")
        lines.append(f"{count} = {work.all_sum}({loop.script.code(lengths[0])})")
        for call in lengths:
            work.draft.replace(call, count)
    if lines:
        work.draft.after(statement_of(loop.script, loop.node), "\n".join(lines))
        work.done("validation", loop.node, f"{', '.join(names)}: added up over all processes")


def is_read_later(script: Script, loop: cst.For, name: str) -> bool:
    """Whether somebody reads a name after a loop."""
    function = script.function_of(loop)
    shared = function is not None and name in script.scopes[function].globals
    return "." in name or shared or any(other == name for _, other in read_after(script, loop))
