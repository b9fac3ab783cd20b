"""No sampler: every rank trains on all samples, so N ranks repeat the work of one N times."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loaders import Loader
from lockstep.source.training import Training
from lockstep.source.tree import constant, spreads


def look(training: Training) -> Iterator[Found]:
    """Find training DataLoaders that get neither a sampler nor a part of the data."""
    for loader in training.loaders:
        if not loader.trains or spreads(loader.call) or _is_handed_on(training, loader):
            continue
        samplers = [loader.given(name) for name in ("sampler", "batch_sampler")]
        if any(one is not None and constant(one) is not None for one in samplers):
            continue
        if not _is_split(training, loader):
            reason = "every rank reads all samples: this DataLoader has no distributed sampler"
            yield Found(loader.script, loader.call, reason)


def _is_handed_on(training: Training, loader: Loader) -> bool:
    """Return whether a function of the project gets the loader, which may divide it."""
    parent = loader.script.parents.get(loader.call)
    outer = loader.script.parents.get(parent) if isinstance(parent, cst.Arg) else None
    if not isinstance(outer, cst.Call):
        return False
    return training.project.definition(loader.script, outer.func) is not None


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
    for parent in loader.script.above(loader.call):
        if isinstance(parent, cst.If) and loader.script.inside(loader.call, parent.body):
            test = loader.script.code(parent.test)
            if "IterableDataset" in test and not test.startswith("not "):
                return True
    return False
