"""No sampler: every rank trains on all samples, so N ranks repeat the work of one N times."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loaders import Loader
from lockstep.source.sure import surely_on_every_rank
from lockstep.source.training import Training

_BY_HAND = re.compile(r"all_?to_?all\w*\(|get_my_slice")
"""Hybrid parallelism: ranks exchange parts of one batch, so each needs all of it."""


def look(training: Training) -> Iterator[Found]:
    """Find training DataLoaders that get neither a sampler nor a part of the data."""
    if any(_BY_HAND.search(script.text) for script in training.project.scripts):
        return
    for loader in training.loaders:
        if not loader.trains or loader.unclear or _is_handed_on(training, loader):
            continue
        if loader.loops and all(loop.alone for loop in loader.loops):
            # One rank reads all samples on purpose.
            continue
        if loader.gets("sampler") or loader.gets("batch_sampler"):
            continue
        if not loader.loops and any(loop.trains for loop in training.loops):
            # Nothing iterates over it, so its name alone says what it is for.
            continue
        if not _is_split(training, loader):
            reason = "every rank reads all samples: this DataLoader has no distributed sampler"
            sure = bool(loader.loops) and not _draws_itself(loader)
            # Beside functions that are spawned, a program may train in one process, too.
            sure = sure and surely_on_every_rank(training, *loader.place)
            yield Found(*loader.place, reason, certain=sure)


def _draws_itself(loader: Loader) -> bool:
    """Match `DataLoader(range(n), collate_fn=draw)`: the numbers are no samples."""
    text = " ".join(origin.script.code(origin.node) for origin in loader.origins("dataset"))
    return "range(" in text and loader.given("collate_fn") is not None


def _is_handed_on(training: Training, loader: Loader) -> bool:
    """Return whether a function of the project gets the loader, which may divide it."""
    script, call = loader.place
    parent = script.parents.get(call)
    outer = script.parents.get(parent) if isinstance(parent, cst.Arg) else None
    if not isinstance(outer, cst.Call):
        return False
    return training.project.definition(script, outer.func) is not None


def _is_split(training: Training, loader: Loader) -> bool:
    """Return whether the data set is, or may be, cut by rank; an iterable one may cut itself."""
    if loader.given("dataset") is None or _is_iterable(loader):
        return True
    for origin in loader.origins("dataset"):
        text = origin.script.code(origin.node)
        if "rank" in text.lower() or "shard" in text.lower():
            return True
        if origin.call is not None:
            made = training.project.class_named(origin.script, origin.call.func)
            if made is not None and any("Iterable" in made[0].code(b) for b in made[1].bases):
                return True
            name = training.project.name(origin.script, origin.call.func) or ""
            if "Iterable" in name or name.startswith("webdataset"):
                return True
    return False


def _is_iterable(loader: Loader) -> bool:
    """Return whether the loader is in the branch of `if isinstance(data, IterableDataset)`."""
    script, call = loader.place
    for parent in script.above(call):
        if isinstance(parent, cst.If) and script.inside(call, parent.body):
            test = script.code(parent.test)
            if "IterableDataset" in test and not test.startswith("not "):
                return True
    return False
