"""`drop_last` in validation skips the last samples, and their number depends on N."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Fix, Found
from lockstep.source.edits import Edit
from lockstep.source.loaders import Loader
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant, walk

_BATCHES = "torch.utils.data.BatchSampler", "torch.utils.data.sampler.BatchSampler"
_REST = re.compile(r"world|replicas|len\(\s*\w*sampler", re.I)


def look(training: Training) -> Iterator[Found]:
    """Find evaluation loaders or samplers with drop_last."""
    for loader in training.loaders:
        if not loader.evaluates or _is_estimate(loader):
            continue
        sizes = loader.constants("batch_size")
        if sizes and all(size == 1 for size in sizes):
            # Every batch is whole.
            continue
        for script, drop in _drops(loader):
            reason = "every rank skips its last, shorter batch in the evaluation"
            # Other code may rely on batches of one size.
            edit = Edit(*script.span(drop), "False")
            fix = Fix("evaluate the last batch too", (edit,), safe=False)
            yield Found(script, drop, reason, fix=fix if constant(drop) is True else None)
        for origin in loader.split_by()[0]:
            last = argument(origin.call, "drop_last", 5) if origin.call else None
            if last is not None and constant(last) is True and not _rest_is_seen(training):
                reason = "the evaluation skips samples that do not divide evenly among the ranks"
                yield Found(origin.script, last, reason, certain=False)


def _drops(loader: Loader) -> Iterator[tuple[Script, cst.BaseExpression]]:
    """Yield each drop_last that is certainly True, of the loader or of its batch sampler."""
    drop, values = loader.given("drop_last"), loader.constants("drop_last")
    if drop is not None and values and all(value is True for value in values):
        yield loader.script, drop
    for script, call, name in loader.makers("batch_sampler"):
        drop = argument(call, "drop_last", 2)
        if name in _BATCHES and drop is not None and constant(drop) is True:
            yield script, drop


def _is_estimate(loader: Loader) -> bool:
    """Return whether the loop ends early on purpose, so that it evaluates only some samples."""
    for loop in loader.loops:
        if isinstance(loop.node, cst.While) or "islice" in loop.script.code(loop.node.iter):
            return True
        if any(isinstance(node, cst.Break) for node in walk(loop.node.body)):
            return True
    return False


def _rest_is_seen(training: Training) -> bool:
    """Match `Subset(data, range(len(sampler) * world_size, len(data)))`: the remaining part."""
    subsets = training.named("torch.utils.data.Subset", "torch.utils.data.dataset.Subset")
    return any(_REST.search(script.code(call)) for script, call in subsets)
