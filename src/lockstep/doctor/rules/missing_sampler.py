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
        if not loader.trains or spreads(loader.call):
            continue
        if any(_given(loader, name) for name in ("sampler", "batch_sampler")):
            continue
        if _is_split(training, loader):
            continue
        yield Found(
            loader.script,
            loader.call,
            "every rank reads all samples: this DataLoader has no distributed sampler",
        )


def _given(loader: Loader, name: str) -> bool:
    value = loader.given(name)
    return value is not None and constant(value) is not None


def _is_split(training: Training, loader: Loader) -> bool:
    """Return whether the data set is, or may be, cut by rank; an iterable one may cut itself."""
    if loader.given("dataset") is None or _is_iterable(loader):
        return True
    for origin in loader.origins("dataset"):
        text = origin.script.code(origin.node)
        if "rank" in text.lower() or "shard" in text.lower():
            return True
        if origin.call is not None:
            made = training.project.definition(origin.script, origin.call.func)
            bases = made[1].bases if made and isinstance(made[1], cst.ClassDef) else ()
            if made and any("Iterable" in made[0].code(base) for base in bases):
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
