"""Without `set_epoch`, a DistributedSampler uses one order for all epochs."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Fix, Found
from lockstep.source.edits import Edit
from lockstep.source.loaders import SAMPLER, Loader
from lockstep.source.ranks import asks_rank
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant, dotted


def look(training: Training) -> Iterator[Found]:
    """Find training loops over epochs whose shuffling sampler never gets the epoch."""
    told = _told(training)
    if told is None:
        return
    for loader in training.loaders:
        made = [call for _, call, name in loader.makers("sampler") if name in SAMPLER]
        if told & set(made):
            continue
        if not made or any(constant(argument(call, "shuffle", 3)) is False for call in made):
            continue
        for loop in loader.loops:
            around = training.project.loops_around(loop.script, loop.node)
            if loop.trains and around and not _is_single(*around[0]):
                script, epochs = around[0]
                yield Found(
                    script,
                    epochs,
                    "nothing calls set_epoch on the sampler, so every epoch has the same order",
                    certain=_always_shuffles(training, loader, made),
                    fix=_fix(loader, script, epochs),
                )
                break


def _is_single(script: Script, loop: cst.CSTNode) -> bool:
    """Match `for epoch in range(1)`, after which no epoch could repeat the order."""
    return isinstance(loop, cst.For) and script.code(loop.iter) == "range(1)"


def _always_shuffles(training: Training, loader: Loader, made: list[cst.Call]) -> bool:
    """Return whether the loader has such a sampler in every run, and not only by an option."""
    shuffles = (argument(call, "shuffle", 3) for call in made)
    if not all(s is None or constant(s) is True for s in shuffles):
        return False
    origins = loader.origins("sampler")
    if all(constant(origin.node) is not None for origin in origins):
        return True
    return not any(
        isinstance(parent, cst.If | cst.IfExp)
        and not asks_rank(parent.test)
        and training.project.truth(origin.script, parent.test, origin.via) is None
        for origin in origins
        if origin.call in made
        for parent in origin.script.above(origin.node)
    )


def _told(training: Training) -> set[cst.Call] | None:
    """Return the samplers that get the epoch; None if nobody knows which ones do."""
    found: set[cst.Call] = set()
    for script, call in training.methods("set_epoch"):
        assert isinstance(call.func, cst.Attribute)
        makers = training.project.makers(script, call.func.value)
        samplers = [made for _, made, name in makers if name in SAMPLER]
        if not samplers:
            return None
        found.update(samplers)
    return None if any(_hands_on(script) for script in training.project.scripts) else found


def _hands_on(script: Script) -> bool:
    """Return whether a script gives `sampler.set_epoch` away, for others to call."""
    return any(
        isinstance(node, cst.Attribute)
        and node.attr.value == "set_epoch"
        and getattr(script.parents.get(node), "func", None) is not node
        for node in script.order
    )


def _fix(loader: Loader, script: Script, epochs: cst.For | cst.While) -> Fix | None:
    """Insert `sampler.set_epoch(epoch)` at the start of the loop, if both names are in scope."""
    sampler = loader.given("sampler")
    if script is not loader.script or not isinstance(epochs, cst.For) or sampler is None:
        return None
    if not isinstance(epochs.target, cst.Name) or not isinstance(epochs.body, cst.IndentedBlock):
        return None
    name = dotted(sampler)
    if name is None or script.function_of(loader.call) is not script.function_of(epochs):
        return None
    place = script.span(epochs.body.body[0])[0]
    call = f"{name}.set_epoch({epochs.target.value})"
    return Fix(f"call {call}", (Edit(place, place, f"{call}\n{' ' * place[1]}"),))
