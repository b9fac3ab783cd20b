"""Every rank saves: N processes write one file at the same time."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.every_rank import differs_by_rank, on_every_rank
from lockstep.source.outputs import SAVES
from lockstep.source.script import Script
from lockstep.source.sure import surely_on_every_rank, surely_one_path
from lockstep.source.training import Training
from lockstep.source.tree import statements


def look(training: Training) -> Iterator[Found]:
    """Find torch.save calls that every rank reaches, to a path that does not contain the rank."""
    # Of two branches that save, the doctor reports the first one that it gets.
    yield from sorted(_found(training), key=lambda found: not found.certain)


def _found(training: Training) -> Iterator[Found]:
    for script, call in training.named(*SAVES):
        path = call.args[1].value if len(call.args) > 1 else None
        if path is None or training.project.truth(script, path) is False:
            # `if path: save(path)`, and nobody gives a path
            continue
        if not _is_called(training, script, call):
            continue
        if not on_every_rank(training, script, call):
            continue
        if training.project.made_by(script, path, "io.BytesIO") or _is_cache(script, call):
            continue
        # Each rank writes its own file.
        if not differs_by_rank(training, script, path):
            sure = surely_on_every_rank(training, script, call)
            sure = sure and surely_one_path(training, script, path)
            reason = "every rank writes this file at the same time"
            yield Found(script, call, reason, certain=sure)


def _is_called(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether the program uses this function, and not only imports its module."""
    function = script.function_of(call)
    if function is None or script is training.project.scripts[0]:
        return True
    project = training.project
    if script.class_of(function) is None and script.function_of(function) is None:
        return bool(project.uses.get(function) or project.handed.get(function))
    return training.used(script, call)


def _is_cache(script: Script, call: cst.Call) -> bool:
    """Return whether a data set caches a sample: the ranks then hold different ones."""
    owner = script.class_of(call)
    inside = statements(owner.body) if owner is not None else []
    return any(isinstance(n, cst.FunctionDef) and n.name.value == "__getitem__" for n in inside)
