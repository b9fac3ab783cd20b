"""Training data: each process gets its part of every batch."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import statement_of
from lockstep.convert.rewrites import shared
from lockstep.convert.work import Work
from lockstep.errors import ConvertError
from lockstep.source.loaders import Loader
from lockstep.source.tree import constant, dotted, spreads, walk

EVEN = 'assert {size} % {world} == 0, "the batch must divide evenly by the processes"'
PLAIN = cst.Name | cst.Attribute | cst.Subscript


def rewrite(work: Work) -> None:
    """A DistributedSampler for every loader that is trained on."""
    for loader in work.parts.trained_on:
        if loader.script is not work.script:
            if is_stream(work, loader):
                raise ConvertError(
                    f"The training data are a stream that {loader.script.path.name} loads, line "
                    f"{loader.script.place(loader.call).start.line}. Make that loader here."
                )
            shared.remade(work, loader)
            continue
        sampler = loader.given("sampler")
        if sampler is not None and constant(sampler) is not None:
            _by_sampler(work, loader, sampler)
            continue
        if work.parts.only_looks(loader):
            _deal(work, loader)
        else:
            _split(work, loader)


def _split(work: Work, loader: Loader) -> None:
    call, draft, world = loader.call, work.draft, work.world
    given = loader.given("batch_sampler")
    if given is not None and constant(given) is not None:
        raise ConvertError(
            f"line {work.line(given)}: the training loader has a batch_sampler of its own, and "
            "only its author knows how to divide that. Divide it by rank, or use shuffle."
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
            f"line {work.line(call)}: the loader has batches of one sample, which nobody can "
            "divide. Give it a batch_size."
        )
    drop = loader.given("drop_last")
    options = []
    if shuffle is None or constant(shuffle) is False:
        options.append("shuffle=False")
    elif constant(shuffle) is not True:
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
    if shuffle is not None and constant(shuffle) is not False:
        alone = f"{world} == 1"
        if constant(shuffle) is not True:
            alone = f"{work.script.code(shuffle)} and {alone}"
        draft.replace(shuffle, alone)
        if next(a for a in call.args if a.value is shuffle).keyword is None:
            raise ConvertError(
                f"line {work.line(shuffle)}: name the loader's arguments: shuffle=True."
            )
    work.argument(call, f"sampler={sampler}")
    if size is not None:
        if not work.options.scale_batch:
            share(work, size)
            even(work, statement_of(work.script, call), work.script.code(size))
        work.done(
            "sampler",
            call,
            "each process takes its part of every batch"
            if not work.options.scale_batch
            else "each process takes batches of its own",
        )


def _deal(work: Work, loader: Loader) -> None:
    """Evaluation in the loop that trains: every sample once, in parts as large as in training."""
    data, size = dataset(work, loader), loader.given("batch_size")
    work.argument(loader.call, f"sampler=range({work.rank}, len({data}), {work.world})")
    if size is not None and not work.options.scale_batch:
        share(work, size)
    work.done("sampler", loader.call, "every sample is evaluated by one process, and none twice")


def _by_sampler(work: Work, loader: Loader, sampler: cst.BaseExpression) -> None:
    """The loader draws in a way of its own."""
    shared.by_its_sampler(work, sampler)
    size = loader.given("batch_size")
    if size is None:
        raise ConvertError(
            f"line {work.line(loader.call)}: the loader's batch size is not in sight. Give it here."
        )
    if not work.options.scale_batch:
        share(work, size)
        even(work, statement_of(work.script, loader.call), work.script.code(size))


def _split_stream(work: Work, loader: Loader) -> None:
    """Each process takes every n-th sample."""
    data, size = loader.given("dataset"), loader.given("batch_size")
    assert data is not None
    work.need("Part", "IterableDataset")
    work.draft.insert(data, f"{work.part}(")
    work.draft.insert(data, ")", behind=True)
    if size is not None and not work.options.scale_batch:
        share(work, size)
        even(work, statement_of(work.script, loader.call), work.script.code(size))
    work.done("sampler", loader.call, "each process takes every n-th sample of the stream")


def phase_of(work: Work, loader: Loader) -> tuple[str, str] | None:
    """`{x: DataLoader(...) for x in ["train", "val"]}`: the variable, and its value in training."""
    for parent in work.script.above(loader.call):
        if isinstance(parent, cst.DictComp):
            keys = [
                work.script.code(part)
                for part in walk(parent.for_in.iter)
                if isinstance(part, cst.SimpleString)
            ]
            trains = [key for key in keys if re.search(r"train|trn", key, re.I)]
            name = dotted(parent.for_in.target)
            if name is not None and len(trains) == 1 and len(keys) > 1:
                return name, trains[0]
        if isinstance(parent, cst.BaseSmallStatement):
            break
    return None


def _split_keywords(work: Work, loader: Loader, data: str, name: str) -> None:
    """The batch size and shuffle are in a dictionary: a new one for several processes."""
    world = work.world
    call = loader.call
    statement = statement_of(work.script, call)
    others = [
        a.value.value
        for other in work.script.calls
        for a in other.args
        if other is not call and a.star == "**" and isinstance(a.value, cst.Name)
    ]
    lines = []
    new = name
    if name in others:
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


def dataset(work: Work, loader: Loader) -> str:
    """The data set of a loader as an expression; one that is made on the spot gets a name."""
    data = loader.given("dataset")
    if data is None:
        raise ConvertError(f"line {work.line(loader.call)}: the loader's data set is not in sight.")
    if isinstance(data, PLAIN):
        return work.script.code(data)
    stem = loader.name.replace("_loader", "").replace("loader", "").rstrip("_.") or "train"
    stem = stem.rsplit(".", 1)[-1]
    name = work.fresh(f"{stem}_set")
    place = work.script.place(data)
    lines = work.script.lines[place.start.line - 1 : place.end.line]
    if len(lines) == 1:
        text = lines[0][place.start.column : place.end.column]
    else:
        text = "\n".join(
            [lines[0][place.start.column :], *lines[1:-1], lines[-1][: place.end.column]]
        )
    statement = statement_of(work.script, loader.call)
    text = text.replace("\n" + work.draft.indentation(statement), "\n")
    work.draft.before(statement, f"{name} = {text}")
    work.draft.replace(data, name)
    return name


def is_stream(work: Work, loader: Loader) -> bool:
    """Whether a loader's data have no length, and give themselves."""
    for origin in loader.origins("dataset"):
        if origin.call is not None:
            made = work.parts.project.definition(origin.script, origin.call.func)
            if made is not None and isinstance(made[1], cst.ClassDef):
                bases = [made[0].code(base.value) for base in made[1].bases]
                if any("Iterable" in base for base in bases):
                    return True
    return False


def even(work: Work, statement: cst.CSTNode, size: str) -> None:
    """Above a statement: the batch divides evenly; once in a block."""
    place = work.script.parents[statement], size
    if place not in work.evened:
        work.evened.add(place)
        work.draft.before(statement, EVEN.format(size=whole(size), world=work.world))


def share(work: Work, size: cst.BaseExpression) -> None:
    """A batch size becomes that of one process."""
    work.draft.replace(size, f"{whole(work.script.code(size))} // {work.world}")


def whole(text: str) -> str:
    """An expression that an operator may follow."""
    plain = text.replace(".", "").replace("_", "").isalnum() or text.endswith((")", "]"))
    return text if plain else f"({text})"
