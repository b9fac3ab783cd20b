"""Give samplers the epoch, so that every pass has another order."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import statement_of
from lockstep.convert.dividing import is_stream, phase_of
from lockstep.convert.work import Work
from lockstep.source.loaders import Loader, Loop, iterated
from lockstep.source.tree import constant, dotted, spreads, walk

ORDER = 60


def rewrite(work: Work) -> None:
    """Call set_epoch on the samplers that the sampler rewrite adds."""
    for loader in work.parts.trained_on:
        own = loader.given("sampler")
        if (
            loader.script is not work.script
            or is_stream(work, loader)
            or not _may_shuffle(loader)
            or work.parts.only_looks(loader)
            or (own is not None and constant(own) is not None)
        ):
            continue
        for loop in work.parts.loops_of(loader):
            _set_epoch(work, loop)
        _restarts(work, loader)


def _may_shuffle(loader: Loader) -> bool:
    shuffle = loader.given("shuffle")
    return spreads(loader.call) or (shuffle is not None and constant(shuffle) is not False)


def _set_epoch(work: Work, loop: Loop) -> None:
    """Call set_epoch in the loop that counts epochs."""
    script, project = loop.script, work.project
    around = [n for s, n in project.loops_around(script, loop.node) if s is work.script]
    counting = next((n for n in around if isinstance(n, cst.For) and not _names_phases(n)), None)
    if not around:
        return
    source = iterated(project, script, loop.node.iter)
    loader = script.code(source)
    if script is not work.script or (counting is None and not _only_here(work, loop)):
        work.note(loop.node, f"call {loader}.sampler.set_epoch with the epoch")
        return
    if counting is None:
        count = next((c for n in around if (c := _counter(work, loop, n)) is not None), None)
        _next(work, loader, statement_of(script, loop.node), count)
        return
    phase = phase_of(work, loop.loader)
    if phase is not None and isinstance(source, cst.Subscript):
        loader = f"{script.code(source.value)}[{phase[1]}]"
    target: cst.BaseExpression = counting.target
    if isinstance(target, cst.Tuple):
        target = target.elements[0].value
    epoch = dotted(target) or ""
    if epoch == "_":
        epoch = work.fresh("epoch")
        work.draft.replace(target, epoch)
    function, outer = script.function_of(loop.node), script.function_of(counting)
    place: cst.CSTNode = statement_of(script, loop.node)
    if function is not outer:
        known = _parameter(work, loop, epoch) if function is not None else None
        if known is not None:
            epoch = known
        elif outer is None and function is not None and script.scope_of(loop.node).find(epoch):
            pass
        else:
            named = _named_outside(work, loop, counting) or (
                loader if loader.startswith("self.") else None
            )
            if named is None:
                work.note(loop.node, f"call {loader}.sampler.set_epoch with the epoch")
                return
            loader = named
            place = counting.body.body[0]
    work.draft.before(place, work.several(f"{loader}.sampler.set_epoch({epoch})"))
    work.done("sampler", place, "set_epoch gives every epoch another order")


def _next(work: Work, loader: str, place: cst.CSTNode, count: str | None = None) -> None:
    """Call set_epoch without a `for` over epochs: with what a `while` counts, or the next one."""
    sampler = f"{loader}.sampler"
    work.draft.before(
        place, work.several(f"{sampler}.set_epoch({count or sampler + '.epoch + 1'})")
    )
    work.done("sampler", place, "set_epoch gives every pass another order")


def _counter(work: Work, loop: Loop, node: cst.For | cst.While) -> str | None:
    """Return what a `while` counts: `while self.epoch < epochs: ...; self.epoch += 1`."""
    script = work.script
    if not isinstance(node, cst.While):
        return None
    tested = {dotted(part) for part in walk(node.test)}
    for part in walk(node.body):
        name = dotted(part.target) if isinstance(part, cst.AugAssign) else None
        if name is not None and name in tested:
            here = script.function_of(loop.node) is script.function_of(node)
            same = name.startswith("self.") and script.class_of(loop.node) is script.class_of(node)
            return name if here or same else None
    return None


def _only_here(work: Work, loop: Loop) -> bool:
    """Return whether a loop only goes through loaders that get a sampler."""
    others = [x.loader for x in work.parts.training.loops if x.node is loop.node]
    return all(loader in work.parts.trained_on for loader in others)


def _restarts(work: Work, loader: Loader) -> None:
    """Call set_epoch before `batches = iter(loader)` in a loop or in an except block."""
    script = work.script
    for call in script.calls:
        if dotted(call.func) != "iter" or len(call.args) != 1:
            continue
        given = call.args[0].value
        origins = work.project.origins(script, given)
        if dotted(given) is None or not any(o.call is loader.call for o in origins):
            continue
        statement = statement_of(script, call)
        again = any(
            isinstance(parent, cst.ExceptHandler | cst.For | cst.While)
            for parent in script.above(statement)
        )
        if again:
            _next(work, script.code(given), statement)


def _names_phases(loop: cst.For) -> bool:
    """Return whether a loop is `for phase in ["train", "val"]`."""
    return isinstance(loop.iter, cst.List | cst.Tuple)


def _parameter(work: Work, loop: Loop, epoch: str) -> str | None:
    """Return the parameter of the loop's function that receives the epoch."""
    function = loop.script.function_of(loop.node)
    assert function is not None
    for parameter in function.params.params:
        name = parameter.name.value
        given = work.project.arguments(loop.script, function, name)
        if any(dotted(value) == epoch for _, value in given):
            return name
    return None


def _named_outside(work: Work, loop: Loop, counting: cst.For) -> str | None:
    """Return what the loop over epochs calls the loader."""
    for call in work.script.calls:
        if work.script.inside(call, counting):
            for arg in call.args:
                origins = work.project.origins(work.script, arg.value)
                if any(o.call is loop.loader.call for o in origins):
                    return work.script.code(arg.value)
    return None
