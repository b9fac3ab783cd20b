"""Refuse other kinds of parallelism: RPC, pipelines, Hogwild, a model split over GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.convert.refuse import Refusal, Stage
from lockstep.source.gradients import is_backward
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant, dotted

ORDER = Stage.NO_DDP, 20
_REMOTE = re.compile(
    r"torch\.distributed\.(rpc|pipelining|pipeline|autograd|optim\.DistributedOptimizer|"
    r"tensor\.parallel)\b|torchgpipe\.|fairscale\.nn\.Pipe"
)
_DEVICE = re.compile(r"cuda:(\d+)$")


def look(training: Training) -> Iterator[Refusal]:
    """Find calls that hand the work to other processes, and models on more than one GPU."""
    yield from _remote(training)
    yield from _started(training)
    yield from _cut(training)


def _remote(training: Training) -> Iterator[Refusal]:
    for script in training.project.scripts:
        for call in script.calls:
            name = training.project.name(script, call.func) or ""
            if _REMOTE.match(name) and training.used(script, call):
                yield _refusal(script, call, f"{name} already divides the work among processes")
        for call in script.calls:
            placed = constant(argument(call, "device_map"))
            if placed in ("auto", "balanced", "balanced_low_0", "sequential"):
                yield _refusal(script, call, f'device_map="{placed}" splits the model over GPUs')


def _started(training: Training) -> Iterator[Refusal]:
    """Find processes that each train, with shared weights as in Hogwild or independently."""
    for function, given in training.project.handed.items():
        for handed in given:
            name = training.project.name(handed.script, handed.call.func) or ""
            if not isinstance(function, cst.FunctionDef) or name == "functools.partial":
                continue
            script = next(s for s in training.project.scripts if function in s.order)
            if training.project.reaches(script, function.body, is_backward):
                what = f"`{function.name.value}` already trains in separate processes"
                yield _refusal(handed.script, handed.call, what)


def _cut(training: Training) -> Iterator[Refusal]:
    """Find parts of a model that are moved to GPUs with different numbers."""
    for script in training.project.scripts:
        places: dict[object, cst.Call] = {}
        for call in script.named_last("to", "cuda"):
            assert isinstance(call.func, cst.Attribute)
            for number in _numbers(training, script, call):
                if _is_part(training, script, call.func.value):
                    places.setdefault(number, call)
        if len(places) > 1:
            last = list(places.values())[-1]
            if training.used(script, last):
                yield _refusal(script, last, "parts of the model are already on different GPUs")


def _numbers(training: Training, script: Script, call: cst.Call) -> set[int]:
    """Return the GPUs that `.to("cuda:1")` and `.cuda(1)` name."""
    found = set()
    for origin in training.project.origins(script, call.args[0].value) if call.args else ():
        value = constant(origin.node)
        if origin.call is not None and (dotted(origin.call.func) or "").endswith("device"):
            index = constant(argument(origin.call, "index", 1))
            value = index if index is not ... else constant(argument(origin.call, "device", 0))
        match = _DEVICE.match(value) if isinstance(value, str) else None
        if match:
            found.add(int(match[1]))
        elif type(value) is int:
            found.add(value)
    # If a flag or an `if` decides, the program uses one GPU at a time.
    return found if len(found) == 1 else set()


def _is_part(training: Training, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a value is a module, made by torch.nn or by a class that has a base."""
    project = training.project
    made = project.makers(script, node)
    if isinstance(node, cst.Call):
        made.append((script, node, project.name(script, node.func) or ""))
    for where, call, name in made:
        if name.startswith(("torch.nn.", "torchvision.models.")):
            return not name.startswith("torch.nn.functional")
        found = project.definition(where, call.func)
        if found is not None and isinstance(found[1], cst.ClassDef) and found[1].bases:
            return True
    return False


def _refusal(script: Script, node: cst.CSTNode, what: str) -> Refusal:
    return Refusal(
        script,
        node,
        f"{what}, and data parallelism on top would make it a different program",
        "Start from the single-GPU form of the script, with one process and the model on one GPU.",
    )
