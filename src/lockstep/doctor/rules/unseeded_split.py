"""Every rank draws its own split, so ranks test on samples that other ranks train on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Fix, Found
from lockstep.source.edits import Edit
from lockstep.source.ranks import asks_rank, guarded
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant, dotted, spreads, walk

_DRAWS = {
    "torch.utils.data.random_split": ("generator", "torch"),
    "torch.utils.data.dataset.random_split": ("generator", "torch"),
    "torch.randperm": ("generator", "torch"),
    "random.shuffle": ("", "random"),
    "random.sample": ("", "random"),
    "numpy.random.shuffle": ("", "numpy"),
    "numpy.random.permutation": ("", "numpy"),
    "sklearn.model_selection.train_test_split": ("random_state", "numpy"),
}
"""Calls that draw an order, the argument that fixes it, and the generator they use."""
_SPLITS = ("random_split", "train_test_split")
"""Names of draws that divide data; another order may be one inside a sample, or of its partners."""
_SEEDS = {
    "torch": ("torch.manual_seed", "torch.random.manual_seed"),
    "random": ("random.seed",),
    "numpy": ("numpy.random.seed",),
}
_SHARED = re.compile(r"broadcast|scatter|all_gather_object")
_STARTS = re.compile(r"(mp|multiprocessing)\.(spawn|Process|start_processes)$")


def look(training: Training) -> Iterator[Found]:
    """Find orders that each rank draws by itself and that cut a loader's data set."""
    if any(_SHARED.search(s.code(c.func)) for s in training.project.scripts for c in s.calls):
        return
    data = _behind_loaders(training)
    for script, call in training.named(*_DRAWS):
        name = training.project.name(script, call.func) or ""
        fixed, source = _DRAWS[name]
        given = argument(call, fixed, 2 if name.endswith("random_split") else None)
        in_order = constant(argument(call, "shuffle")) is False
        if in_order or spreads(call) or (given is not None and constant(given) is not None):
            continue
        cuts = call in data or (name.endswith("shuffle") and _target(script, call) in data)
        if (
            not cuts
            or guarded(training.project, script, call)
            or _drawn_once(training, script, call)
        ):
            continue
        if any(_helps(training, s, seed, script, call) for s, seed in _seeds(training, source)):
            continue
        yield Found(
            script,
            call,
            "every rank draws this by itself, so the ranks split the data differently",
            certain=training.distributed and name.endswith(_SPLITS),
            fix=_fix(script, call) if fixed == "generator" and given is None else None,
        )


def _behind_loaders(training: Training) -> set[object]:
    """Return the calls behind the loaders' data sets, and each (scope, name) on the way."""
    seen: set[object] = set()
    waiting: list[tuple[Script, cst.CSTNode]] = []
    for loader in training.loaders:
        if (data := loader.given("dataset")) is not None:
            waiting.append((loader.script, data))
            waiting += [(origin.script, origin.node) for origin in loader.origins("dataset")]
    while waiting:
        script, node = waiting.pop()
        for part in walk(node) if node in script.order else ():
            if part in seen or part is getattr(script.parents.get(part), "attr", None):
                continue
            seen.add(part)
            func = part.func if isinstance(part, cst.Call) else None
            made = training.project.class_named(script, func) if func is not None else None
            if made is not None:
                # Only the constructor of a data set counts: elsewhere it may augment.
                begins = made[0].scopes[made[1]].bindings.get("__init__", [])
                waiting += [(made[0], begin.node) for begin in begins]
            name = dotted(part)
            if name is not None:
                seen.add((_owner(script, part, name), name))
            if name is not None or func is not None:
                waiting += [(o.script, o.node) for o in training.project.origins(script, part)]
    return seen


def _owner(script: Script, node: cst.CSTNode, name: str) -> object:
    """Return where a name lives: the class for `self.x`, else the function or the module."""
    if name.startswith("self."):
        return script.class_of(node)
    found = script.scope_of(node).find(name)
    return found[0].node if found else None


def _target(script: Script, call: cst.Call) -> object:
    """Return the object that the call shuffles in place."""
    name = dotted(call.args[0].value) if call.args else None
    return (_owner(script, call.args[0].value, name), name) if name else None


def _seeds(training: Training, source: str) -> Iterator[tuple[Script, cst.Call]]:
    for script in training.project.scripts:
        for call in script.calls:
            name = training.project.title(script, call.func)
            # A set_seed, seed_everything or seed_all_rng of another package.
            foreign = "seed" in name.rsplit(".", 1)[-1] and not name.startswith(
                ("./", "torch.", "random.", "numpy.")
            )
            if name in _SEEDS[source] or foreign:
                yield script, call


def _helps(
    training: Training, where: Script, seed: cst.Call, script: Script, call: cst.Call
) -> bool:
    """Return whether a seed may run before the draw and be the same on all ranks."""
    for arg in seed.args:
        origins = training.project.origins(where, arg.value)
        if asks_rank(arg.value) or (origins and all(asks_rank(o.node) for o in origins)):
            return False
    same = where is script and script.function_of(seed) is script.function_of(call)
    return not same or script.order[seed] < script.order[call]


def _drawn_once(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether the parent process draws this before it starts the ranks."""
    calls = ((s, c) for s in training.project.scripts for c in s.calls)
    starts = [(s, c) for s, c in calls if _STARTS.search(training.project.title(s, c.func))]
    function = script.function_of(call)
    if function is None:
        tests = (script.code(p.test) for p in script.above(call) if isinstance(p, cst.If))
        return bool(starts) and any("__name__" in test for test in tests)
    return any(s is script and script.function_of(c) is function for s, c in starts)


def _fix(script: Script, call: cst.Call) -> Fix | None:
    """Add a seeded generator, if the name `torch` is in scope."""
    known = any(binding.path == "torch" for binding in script.top.bindings.get("torch", []))
    # A generator must be on the device that randperm gets.
    if not known or not call.args or argument(call, "device") is not None:
        return None
    place = script.span(call.args[-1].value)[1]
    text = ", generator=torch.Generator().manual_seed(0)"
    return Fix("draw it with a seeded generator", (Edit(place, place, text),))
