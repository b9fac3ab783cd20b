"""Give each process its part of every training batch, in another order in every epoch."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import bindings_of, statement_of
from lockstep.convert.dividing import (
    EVEN,
    dataset,
    divide_batch,
    has_sampler,
    is_shuffled,
    is_stream,
    phase_of,
    share,
)
from lockstep.convert.work import Work
from lockstep.errors import ConvertError
from lockstep.source.loaders import Loader, Loop, iterated
from lockstep.source.tree import constant, dotted, spreads, walk

ORDER = 50


def rewrite(work: Work) -> None:
    """Divide the loaders that are trained on, and tell their samplers the epoch."""
    _divide(work)
    _set_epochs(work)


def _divide(work: Work) -> None:
    """Add a DistributedSampler to every loader that is trained on."""
    for loader in work.parts.trained_on:
        if loader.script is not work.script:
            if is_stream(work, loader):
                raise ConvertError(
                    f"{loader.script.path.name} loads the training data as a stream, line "
                    f"{loader.script.place(loader.call).start.line}. Make that loader here."
                )
            _remake(work, loader)
        elif has_sampler(loader):
            _by_sampler(work, loader)
        elif work.parts.only_looks(loader):
            _deal(work, loader)
        else:
            _split(work, loader)


def _split(work: Work, loader: Loader) -> None:
    call, world = loader.call, work.world
    given = loader.given("batch_sampler")
    if given is not None and has_sampler(loader, "batch_sampler"):
        raise ConvertError(
            f"line {work.line(given)}: the training loader has a batch_sampler, and lockstep "
            "does not know how to divide it. Divide it by rank, or use shuffle."
        )
    if is_stream(work, loader):
        _split_stream(work, loader)
        return
    data = dataset(work, loader)
    work.need("DistributedSampler")
    size, shuffle = loader.given("batch_size"), loader.given("shuffle")
    stars = [a for a in call.args if a.star == "**"]
    if size is None and stars and isinstance(stars[0].value, cst.Name):
        _split_keywords(work, loader, data, stars[0].value.value)
        return
    if size is None and not spreads(call):
        raise ConvertError(
            f"line {work.line(call)}: the loader has batches of one sample, which cannot be "
            "divided. Give it a batch_size."
        )
    drop = loader.given("drop_last")
    options = []
    if not is_shuffled(loader):
        options.append("shuffle=False")
    elif shuffle is not None and constant(shuffle) is not True:
        options.append(f"shuffle={work.script.code(shuffle)}")
    if drop is not None and constant(drop) is not False:
        options.append(f"drop_last={work.script.code(drop)}")
    made = f"DistributedSampler({', '.join([data, *options])})"
    phase = phase_of(work, loader)
    if phase is not None:
        variable, key = phase
        others = f"range({work.rank}, len({data}), {world})"
        made = f"({made} if {variable} == {key} else {others})"
    sampler = f"{made} if {world} > 1 else None"
    if shuffle is not None and is_shuffled(loader):
        always = constant(shuffle) is True
        asked = "" if always else f"{work.script.code(shuffle)} and "
        work.draft.replace(shuffle, f"{asked}{world} == 1")
        if next(a for a in call.args if a.value is shuffle).keyword is None:
            raise ConvertError(
                f"line {work.line(shuffle)}: name the loader's arguments, as in shuffle=True."
            )
    work.argument(call, f"sampler={sampler}")
    if size is not None:
        divide_batch(work, call, size)
        what = "its own batches" if work.options.scale_batch else "its part of every batch"
        work.done("sampler", call, f"each process takes {what}")


def _deal(work: Work, loader: Loader) -> None:
    """Divide a loader that is only evaluated on inside the training loop: every sample once."""
    data, size = dataset(work, loader), loader.given("batch_size")
    work.argument(loader.call, f"sampler=range({work.rank}, len({data}), {work.world})")
    if size is not None and not work.options.scale_batch:
        share(work, size)
    work.done("sampler", loader.call, "one process evaluates each sample, and none twice")


def _by_sampler(work: Work, loader: Loader) -> None:
    """Share the order of `DataLoader(data, sampler=WeightedRandomSampler(...))`."""
    sampler, size = loader.given("sampler"), loader.given("batch_size")
    assert sampler is not None
    if size is None:
        raise ConvertError(
            f"line {work.line(loader.call)}: the loader's batch size is not visible. Give it here."
        )
    work.need("Share")
    work.draft.around(sampler, f"{work.share}(")
    work.done("sampler", sampler, "the first process draws; each takes its part of every batch")
    divide_batch(work, loader.call, size)


def _split_stream(work: Work, loader: Loader) -> None:
    """Let each process take every n-th sample of a stream."""
    data, size = loader.given("dataset"), loader.given("batch_size")
    assert data is not None
    work.need("Part", "IterableDataset")
    work.draft.around(data, f"{work.part}(")
    if size is not None:
        divide_batch(work, loader.call, size)
    work.done("sampler", loader.call, "each process takes every n-th sample of the stream")


def _split_keywords(work: Work, loader: Loader, data: str, name: str) -> None:
    """Divide a loader whose batch size and shuffle come from a dictionary."""
    world = work.world
    call = loader.call
    statement = statement_of(work.script, call)
    args = [a for other in work.script.calls if other is not call for a in other.args]
    lines = []
    new = name
    if any(a.star == "**" and dotted(a.value) == name for a in args):
        new = work.fresh(f"train_{name}")
        lines.append(f"{new} = dict({name})")
        star = next(a for a in call.args if a.star == "**")
        work.draft.replace(star.value, new)
    given = loader.given("shuffle")
    shuffle = work.script.code(given) if given is not None else f'{new}.pop("shuffle", False)'
    if given is not None:
        work.draft.replace(given, f"{work.script.code(given)} and {world} == 1")
    inner = [f'{new}["sampler"] = DistributedSampler({data}, shuffle={shuffle})']
    if not work.options.scale_batch:
        size = f'{new}["batch_size"]'
        inner += [EVEN.format(size=size, world=world), f"{size} //= {world}"]
    work.draft.before(statement, "\n".join([*lines, work.several("\n".join(inner))]))
    work.done("sampler", call, "each process takes its part of every batch")


def _remake(work: Work, loader: Loader) -> None:
    """Make a loader of another file again, for a part of every batch."""
    where, line = loader.script.path.name, loader.script.place(loader.call).start.line
    loops = list(work.parts.loops_of(loader))
    other = next((loop for loop in loops if loop.script is not work.script), None)
    if other is not None:
        raise ConvertError(
            f"The training loop is in {other.script.path.name}, line "
            f"{other.script.place(other.node).start.line}. Convert that file, or move it here."
        )
    sources = [iterated(work.project, work.script, loop.node.iter) for loop in loops]
    held = dict(found for source in sources if (found := _held(work, source)) is not None)
    if not held:
        raise ConvertError(
            f"{where} loads the training data, line {line}, and lockstep could not see which "
            "variable of this script holds the loader. Make the loader in this script."
        )
    work.need("divided", "Share", "DataLoader")
    for name, statement in held.items():
        work.draft.after(statement, f"{name} = {work.divided}({name})")
        work.done(
            "sampler",
            statement,
            f"a new loader replaces that of {where}: each process takes its part of every batch",
        )


def _held(work: Work, node: cst.CSTNode, depth: int = 6) -> tuple[str, cst.CSTNode] | None:
    """Return the variable that holds the loader of a loop, and the statement that assigns it."""
    script, name = work.script, dotted(node)
    if name is None or not depth:
        return None
    for binding in bindings_of(script, node):
        if binding.kind == "assign" and isinstance(binding.value, cst.Call):
            return name, statement_of(script, binding.node)
        inner = [binding.value] if binding.kind == "assign" else []
        if binding.kind == "parameter":
            function = script.function_of(binding.node)
            given = work.project.arguments(script, function, name) if function else []
            inner = [value for where, value in given if where is script]
        for value in inner:
            held = _held(work, value, depth - 1) if value is not None else None
            if held is not None:
                return held
    return None


def _set_epochs(work: Work) -> None:
    """Call set_epoch on the samplers that the sampler rewrite adds."""
    for loader in work.parts.trained_on:
        if (
            loader.script is work.script
            and not is_stream(work, loader)
            and (spreads(loader.call) or is_shuffled(loader))
            and not work.parts.only_looks(loader)
            and not has_sampler(loader)
        ):
            for loop in work.parts.loops_of(loader):
                _set_epoch(work, loop)
            _restarts(work, loader)


def _set_epoch(work: Work, loop: Loop) -> None:
    """Call set_epoch in the loop that counts epochs."""
    script, project = loop.script, work.project
    around = [n for s, n in project.loops_around(script, loop.node) if s is work.script]
    # Not `for phase in ["train", "val"]`.
    fors = [n for n in around if isinstance(n, cst.For)]
    counting = next((n for n in fors if not isinstance(n.iter, cst.List | cst.Tuple)), None)
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
    known = _parameter(work, loop, epoch) if function not in (None, outer) else None
    visible = outer is None and function is not None and script.scope_of(loop.node).find(epoch)
    if known is not None:
        epoch = known
    elif function is not outer and not visible:
        own = loader if loader.startswith("self.") else None
        named = _named_outside(work, loop, counting) or own
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
    epoch = count or f"{sampler}.epoch + 1"
    work.draft.before(place, work.several(f"{sampler}.set_epoch({epoch})"))
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
        around = script.above(statement)
        if any(isinstance(parent, cst.ExceptHandler | cst.For | cst.While) for parent in around):
            _next(work, script.code(given), statement)


def _parameter(work: Work, loop: Loop, epoch: str) -> str | None:
    """Return the parameter of the loop's function that receives the epoch."""
    function = loop.script.function_of(loop.node)
    assert function is not None
    for name in (parameter.name.value for parameter in function.params.params):
        given = work.project.arguments(loop.script, function, name)
        if any(dotted(value) == epoch for _, value in given):
            return name
    return None


def _named_outside(work: Work, loop: Loop, counting: cst.For) -> str | None:
    """Return what the loop over epochs calls the loader."""
    inside = [call for call in work.script.calls if work.script.inside(call, counting)]
    for value in (arg.value for call in inside for arg in call.args):
        origins = work.project.origins(work.script, value)
        if any(o.call is loop.loader.call for o in origins):
            return work.script.code(value)
    return None
