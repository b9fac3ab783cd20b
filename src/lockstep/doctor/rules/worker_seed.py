"""The workers of a DataLoader draw the same numbers, from copies of one generator or seed.

Since torch 1.9 every worker seeds torch, random and NumPy's global generator by itself in every
epoch. Two bugs remain: a generator that the data set owns is copied into every worker, and a
worker_init_fn may undo what torch did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loaders import Loader
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import constant, dotted, walk, walk_shallow

_GENERATORS = (
    "numpy.random.RandomState",
    "numpy.random.default_rng",
    "numpy.random.Generator",
    "random.Random",
    "torch.Generator",
)
_SEEDS = {"numpy.random.seed": "numpy.random.", "random.seed": "random."}
_DIFFERS = re.compile(r"initial_seed|rank|get_worker_info|epoch|time|urandom|SeedSequence", re.I)
_RESEEDS = {"seed", "manual_seed", "set_state", "setstate"}


def look(training: Training) -> Iterator[Found]:
    """Find training loaders whose data set or worker_init_fn repeats random numbers."""
    for loader in training.loaders:
        if not loader.trains or loader.unclear or not _has_workers(loader):
            continue
        start = loader.given("worker_init_fn")
        for origin in loader.origins("dataset"):
            made = origin.call and training.project.class_named(origin.script, origin.call.func)
            if made and (start is None or constant(start) is None):
                yield from _copied(training, *made)
            elif made and start is not None:
                yield from _repeated(training, loader.script, start, *made)


def _has_workers(loader: Loader) -> bool:
    values = loader.constants("num_workers")
    return bool(values) and all(value not in (0, None) for value in values)


def _items(training: Training, script: Script, data: cst.ClassDef) -> list[tuple[Script, cst.Call]]:
    """Return all calls that __getitem__ makes, directly or through other methods."""
    for method in script.methods(data, "__getitem__"):
        return list(training.project.calls_below(script, method.body))
    return []


def _copied(training: Training, script: Script, data: cst.ClassDef) -> Iterator[Found]:
    """Find a generator that the data set keeps: every worker continues from the same state."""
    if "get_worker_info" in script.code(data):
        return
    calls = [call for where, call in _items(training, script, data) if where is script]
    used: set[str] = set()
    for call in calls:
        owner = dotted(call.func.value) if isinstance(call.func, cst.Attribute) else None
        if owner and isinstance(call.func, cst.Attribute) and call.func.attr.value in _RESEEDS:
            return
        used |= {owner} if owner else set()
        used |= {dotted(arg.value) or "" for arg in call.args}
    for name, bindings in [*script.scopes[data].bindings.items(), *script.top.bindings.items()]:
        if name not in used or len(bindings) != 1:
            continue
        made = bindings[0].value
        function = script.function_of(bindings[0].node)
        if not isinstance(made, cst.Call) or (function and function.name.value != "__init__"):
            continue
        if function is None and not made.args:
            # If the workers import the module again, each gets another generator.
            continue
        if training.project.name(script, made.func) in _GENERATORS:
            reason = f"every worker gets a copy of {name}, so all workers draw the same numbers"
            yield Found(script, made, f"{reason}, in every epoch")


def _repeated(
    training: Training, script: Script, start: cst.CSTNode, place: Script, data: cst.ClassDef
) -> Iterator[Found]:
    """Find a worker_init_fn whose seed contains neither the rank nor the epoch."""
    found = training.project.definition(script, start)
    where, body = (found[0], found[1].body) if found else (script, start)
    if not isinstance(body, cst.BaseSuite | cst.Lambda) or _DIFFERS.search(where.code(body)):
        return
    names = [training.project.name(s, c.func) or "" for s, c in _items(training, place, data)]
    for call in walk(body) if isinstance(body, cst.Lambda) else walk_shallow(body):
        name = training.project.name(where, call.func) if isinstance(call, cst.Call) else None
        if not isinstance(call, cst.Call) or name not in _SEEDS:
            continue
        if any(n.startswith(_SEEDS[name]) for n in names) and _is_known(training, where, call):
            yield Found(
                where,
                call,
                "the workers of all ranks start every epoch with these seeds and draw the "
                "same numbers again",
                certain=False,
            )


def _is_known(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether the seed consists of constants, the worker's number and NumPy's state.

    torch seeds NumPy with several words; the first word of its state is then always 2**31.
    """
    for arg in call.args:
        for origin in training.project.origins(script, arg.value):
            text = origin.script.code(origin.node)
            known = text.replace("np.random.get_state()", "").replace(
                "numpy.random.get_state()", ""
            )
            if "(" in re.sub(r"\bint\(", "", known) or _DIFFERS.search(text):
                return False
    return bool(call.args)
