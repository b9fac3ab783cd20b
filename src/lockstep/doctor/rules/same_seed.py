"""One seed on all ranks makes them draw the same augmentation, dropout and noise."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.ranks import asks_rank, guarded
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument

_SEEDS = "torch.manual_seed", "torch.random.manual_seed", "torch.cuda.manual_seed"
_SEEDING = re.compile(r"seed", re.I)
_SPAWN = "torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn"
_AUGMENTATION = re.compile(
    r"torchvision\.transforms\.(v2\.)?(Random\w+|ColorJitter|RandAugment|AutoAugment|"
    r"TrivialAugmentWide|AugMix|GaussianBlur|MixUp|CutMix)"
)
_DROPOUT = re.compile(r"torch\.nn\.(\w*Dropout\w*|functional\.dropout\w*)")
_NOISE = re.compile(r"torch\.(rand|randn|randint|rand_like|randn_like|bernoulli|normal)")


def look(training: Training) -> Iterator[Found]:
    """Find torch.manual_seed with a constant, where no seed contains the rank."""
    calls = ((script, call) for script in training.project.scripts for call in script.calls)
    seedings = (c for c in calls if _SEEDING.search(c[0].code(c[1].func).rsplit(".", 1)[-1]))
    if any(_differs(training, *seeding) for seeding in seedings):
        return
    random = _random_part(training)
    if random is None or next(training.methods("backward"), None) is None:
        return
    for script, call in training.named(*_SEEDS):
        if not _is_constant(training, script, call) or guarded(training.project, script, call):
            continue
        function = script.function_of(call)
        if function is not None and function.name.value.startswith(("test", "setUp", "eval")):
            continue
        if _on_the_ranks(training, script, call):
            yield Found(
                script,
                call,
                f"all ranks get this seed, so {random} draws the same numbers on each of them",
                certain=False,
            )
            return


def _differs(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether the seed contains the rank, or is random itself: torch.seed()."""
    if training.project.name(script, call.func) in ("torch.seed", "torch.random.seed"):
        return True
    for arg in call.args:
        origins = training.project.origins(script, arg.value)
        if asks_rank(arg.value) or any(asks_rank(origin.node) for origin in origins):
            return True
    return False


def _is_constant(training: Training, script: Script, call: cst.Call) -> bool:
    if len(call.args) != 1:
        return False
    seed = call.args[0].value
    if isinstance(seed, cst.Name):
        known = script.scope_of(seed).find(seed.value)
        if known is not None and any(b.kind == "augment" for b in known[1]):
            return False
    values = training.project.constants(script, seed)
    return bool(values) and all(type(value) is int for value in values)


def _on_the_ranks(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether this runs in every process; code before mp.spawn runs only in the parent."""
    spawns = list(training.named(*_SPAWN))
    function = script.function_of(call)
    if not spawns:
        return function is None or bool(training.project.uses.get(function) or function.decorators)
    if function is None:
        return not any(isinstance(parent, cst.If) for parent in script.above(call))
    for where, spawn in spawns:
        target = training.project.function(where, spawn.args[0].value) if spawn.args else None
        if target is not None and training.project.reaches(
            target[0], target[1].body, lambda _, node: node is call
        ):
            return True
    return False


def _random_part(training: Training) -> str | None:
    """Return the name of the part that draws random numbers while the ranks train, or None."""
    for script in training.project.scripts:
        for call in script.calls:
            name = training.project.name(script, call.func) or ""
            if _AUGMENTATION.fullmatch(name):
                return f"the augmentation ({name.rsplit('.', 1)[-1]})"
            if _DROPOUT.fullmatch(name) and _drops(training, script, call):
                return "dropout"
    for loop in training.loops:
        if loop.trains:
            for script, call in training.project.calls_below(loop.script, loop.node.body):
                name = training.project.name(script, call.func) or ""
                if _NOISE.fullmatch(name) and argument(call, "generator") is None:
                    return f"the noise ({name})"
    return None


def _drops(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether anything is dropped: dropout with a rate of 0 drops nothing."""
    place = 1 if "functional" in (training.project.name(script, call.func) or "") else 0
    share = argument(call, "p", place)
    return share is None or any(v != 0 for v in training.project.constants(script, share))
