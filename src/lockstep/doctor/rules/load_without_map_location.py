"""Without map_location, torch.load puts the checkpoint on the GPU that saved it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Fix, Found
from lockstep.source.edits import Edit
from lockstep.source.ranks import asks_rank, guarded
from lockstep.source.script import Script
from lockstep.source.sure import surely_on_every_rank
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant, spreads, walk_shallow

_PLAIN = re.compile(r"sched|scaler|sampler|loader|token|vocab", re.I)
_PUBLISHED = re.compile(r"-[0-9a-f]{8}\.pth|imagenet|pretrained_model|download", re.I)
_OPTIMIZER = re.compile(r"(opt|optim|optimizer|optimiser)\w*\.load_state_dict|[\"']optim", re.I)
_FILE = re.compile(r"[\w-]+\.(?:pth?|tar|bin|ckpt|pkl)\b")
_TO_CPU = re.compile(r"\.cpu\(\)$|\.to\([\"']cpu[\"']\)$")
_MODEL_STATE = re.compile(r"\bstate_dict\(\)")


def look(training: Training) -> Iterator[Found]:
    """Find loads of a model's state that every rank runs and that name no device."""
    loads = [
        (script, call)
        for script, call in training.named("torch.load")
        if training.used(script, call) and not spreads(call) and not _has_device(script, call)
    ]
    if not loads or not training.on_gpus:
        return
    used = _loaded(training)
    saves = {place: _saves_gpu_state(training, *place) for place in training.named("torch.save")}
    saved = any(saves.values()) and not any(
        "offload_to_cpu=True" in s.text for s in training.project.scripts
    )
    for script, call in loads:
        if call in used and not guarded(training.project, script, call):
            if (
                _is_on_wrapper(training, script, call)
                or _is_pretrained(training, script, call)
                or _is_fallback(script, call)
            ):
                continue
            names = _names(training, script, call, 0)
            own = [gpu for place, gpu in saves.items() if names & _names(training, *place, 1)]
            if (own and not any(own)) or _is_of_a_rank(training, script, call):
                continue
            yield Found(
                script,
                call,
                "every rank loads this checkpoint onto the GPU that saved it, usually GPU 0",
                certain=saved
                and (bool(own) or _is_resume(script, call))
                and surely_on_every_rank(training, script, call),
                fix=_fix(script, call),
            )


def _has_device(script: Script, call: cst.Call) -> bool:
    """Return whether the device is known: an argument, a mapped file or `with torch.device()`."""
    place = argument(call, "map_location", 1)
    if place is not None and constant(place) is not None:
        return True
    mapped = argument(call, "mmap")
    if mapped is not None and constant(mapped) is not False:
        return True
    around = [p for p in script.above(call) if isinstance(p, cst.With)]
    if any("device(" in script.code(item) for block in around for item in block.items):
        return True
    # Another branch names the device: this branch is for other runs.
    branches = [p for p in script.above(call) if isinstance(p, cst.If)]
    return any("map_location" in script.code(branch) for branch in branches)


def _loaded(training: Training) -> set[cst.CSTNode]:
    """Yield the calls whose result goes into load_state_dict, or is the model that is wrapped."""
    values = [(wrap.script, wrap.model) for wrap in training.copies if wrap.model is not None]
    for script, call in training.methods("load_state_dict"):
        # These hold numbers, not tensors on a GPU.
        if not _PLAIN.search(script.code(call.func)):
            values += [(script, arg.value) for arg in call.args[:1]]
    found: set[cst.CSTNode] = set()
    for script, value in values:
        for origin in training.project.origins(script, value):
            found.update(_sources(training, origin.script, origin.node))
    return found


def _sources(training: Training, script: Script, node: cst.CSTNode) -> set[cst.CSTNode]:
    """Follow `checkpoint["model"]` and `checkpoint.pop("model")` back to the checkpoint."""
    while True:
        if isinstance(node, cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value not in ("get", "pop", "state_dict", "to", "cuda"):
                break
            node = node.func.value
        else:
            break
    if node not in script.order:
        return {node}
    return {node} | {origin.node for origin in training.project.origins(script, node)}


def _names(training: Training, script: Script, call: cst.Call, place: int) -> set[str]:
    """Return the names of files, such as last.pt, in the path of a load or a save."""
    path = argument(call, "f", place)
    origins = training.project.origins(script, path) if path is not None else []
    return {found for o in origins for found in _FILE.findall(o.script.code(o.node))}


def _is_on_wrapper(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether only `ddp.load(...)` runs this: the wrapper has no such method."""
    function = script.function_of(call)
    if function is None or script.class_of(function) is None:
        return False
    calls = training.project.calls_of(script, function)
    return bool(calls) and all(
        isinstance(use.func, cst.Attribute) and training.wrapped(where, use.func.value)
        for where, use in calls
    )


def _is_pretrained(training: Training, script: Script, call: cst.Call) -> bool:
    """Match `resnet50-19c8e357.pth`: published weights are on the CPU."""
    path = argument(call, "f", 0)
    origins = training.project.origins(script, path) if path is not None else []
    return any(_PUBLISHED.search(origin.script.code(origin.node)) for origin in origins)


def _is_fallback(script: Script, call: cst.Call) -> bool:
    """Return whether this runs only if another way to load has failed."""
    return any(isinstance(parent, cst.ExceptHandler) for parent in script.above(call))


def _is_resume(script: Script, call: cst.Call) -> bool:
    """Return whether the checkpoint also brings back an optimizer: this program has written it."""
    body = script.function_of(call) or script.tree
    return _OPTIMIZER.search(script.code(body)) is not None


def _is_of_a_rank(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether each rank loads a file of its own."""
    path = argument(call, "f", 0)
    origins = training.project.origins(script, path) if path is not None else []
    return any(asks_rank(origin.node) for origin in origins)


def _saves_gpu_state(training: Training, script: Script, call: cst.Call) -> bool:
    """Return whether this program itself saves checkpoints with tensors on the model's device."""
    origins = training.project.origins(script, call.args[0].value) if call.args else []
    texts = [origin.script.code(origin.node) for origin in origins]
    if not any(_MODEL_STATE.search(text) and "cpu" not in text for text in texts):
        return False
    # `net.cpu()`, and then the state is saved
    function = script.function_of(call)
    body = script.tree if function is None else function.body
    moves = (n for n in walk_shallow(body) if isinstance(n, cst.Expr))
    return not any(
        script.order[n] < script.order[call] and _TO_CPU.search(script.code(n)) for n in moves
    )


def _fix(script: Script, call: cst.Call) -> Fix | None:
    title = 'load to the CPU: map_location="cpu"'
    given = argument(call, "map_location", 1)
    if given is not None:
        return Fix(title, (Edit(*script.span(given), '"cpu"'),))
    if not call.args:
        return None
    here = script.span(call.args[-1])[1]
    return Fix(title, (Edit(here, here, ', map_location="cpu"'),))
