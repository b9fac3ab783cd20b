"""Helpers that divide data and batches among processes, for several rewrites."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import statement_of
from lockstep.convert.work import Work
from lockstep.errors import ConvertError
from lockstep.source.loaders import Loader
from lockstep.source.tree import constant, dotted, walk

EVEN = 'assert {size} % {world} == 0, "the batch must divide evenly by the processes"'
_PLAIN = cst.Name | cst.Attribute | cst.Subscript


def phase_of(work: Work, loader: Loader) -> tuple[str, str] | None:
    """Return x and "train", for `{x: DataLoader(...) for x in ["train", "val"]}`."""
    for parent in work.script.above(loader.call):
        if isinstance(parent, cst.DictComp):
            strings = [n for n in walk(parent.for_in.iter) if isinstance(n, cst.SimpleString)]
            keys = [work.script.code(string) for string in strings]
            trains = [key for key in keys if re.search(r"train|trn", key, re.I)]
            name = dotted(parent.for_in.target)
            if name is not None and len(trains) == 1 and len(keys) > 1:
                return name, trains[0]
        if isinstance(parent, cst.BaseSmallStatement):
            break
    return None


def dataset(work: Work, loader: Loader) -> str:
    """Return the data set of a loader as an expression; give it a name if it is made in place."""
    data = loader.given("dataset")
    if data is None:
        raise ConvertError(f"line {work.line(loader.call)}: lockstep cannot see the loader's data.")
    if isinstance(data, _PLAIN):
        return work.script.code(data)
    stem = loader.name.replace("_loader", "").replace("loader", "").rstrip("_.") or "train"
    stem = stem.rsplit(".", 1)[-1]
    name = work.fresh(f"{stem}_set")
    place = work.script.place(data)
    lines = work.script.lines[place.start.line - 1 : place.end.line]
    lines[-1] = lines[-1][: place.end.column]
    lines[0] = lines[0][place.start.column :]
    statement = statement_of(work.script, loader.call)
    text = "\n".join(lines).replace("\n" + work.draft.indentation(statement), "\n")
    work.draft.before(statement, f"{name} = {text}")
    work.draft.replace(data, name)
    return name


def is_stream(work: Work, loader: Loader) -> bool:
    """Return whether a loader reads a stream without a length."""
    calls = [(o.script, o.call) for o in loader.origins("dataset") if o.call is not None]
    made = [work.project.definition(script, call.func) for script, call in calls]
    return any(
        "Iterable" in found[0].code(base.value)
        for found in made
        if found is not None and isinstance(found[1], cst.ClassDef)
        for base in found[1].bases
    )


def is_shuffled(loader: Loader) -> bool:
    """Return whether a loader shuffles, or may shuffle."""
    shuffle = loader.given("shuffle")
    return shuffle is not None and constant(shuffle) is not False


def has_sampler(loader: Loader, name: str = "sampler") -> bool:
    """Return whether a loader is given a sampler, and not None."""
    given = loader.given(name)
    return given is not None and constant(given) is not None


def even(work: Work, statement: cst.CSTNode, size: str) -> None:
    """Assert above a statement that the batch divides evenly; once per block."""
    place = work.script.parents[statement], size
    if place not in work.evened:
        work.evened.add(place)
        work.draft.before(statement, EVEN.format(size=whole(size), world=work.world))


def share(work: Work, size: cst.BaseExpression) -> None:
    """Replace a batch size by that of one process."""
    work.draft.replace(size, f"{whole(work.script.code(size))} // {work.world}")


def divide_batch(work: Work, call: cst.Call, size: cst.BaseExpression) -> None:
    """Replace a loader's batch size by that of one process, and assert that it divides evenly."""
    if not work.options.scale_batch:
        share(work, size)
        even(work, statement_of(work.script, call), work.script.code(size))


def whole(text: str) -> str:
    """Return an expression in a form that an operator may follow."""
    plain = text.replace(".", "").replace("_", "").isalnum() or text.endswith((")", "]"))
    return text if plain else f"({text})"
