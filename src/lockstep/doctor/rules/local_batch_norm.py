"""Local batch norm: with few samples on each rank its statistics are noisy and differ by rank."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loaders import Loader
from lockstep.source.models import maker
from lockstep.source.project import DEPTH
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, walk

SMALL = 16
"""The largest number of samples per rank for which batch statistics count as noisy."""
_SEEN_TO = re.compile(
    r"sync_?batch_?norm|sync_?bn|frozen_?batch_?norm|freeze_bn|isinstance\([^)]*batchnorm", re.I
)
"""Another kind of batch norm, or code that handles batch-norm layers itself."""
_LAYER = re.compile(r"torch\.nn\.(modules\.batchnorm\.)?(Lazy)?BatchNorm[123]d")
_TORCHVISION = re.compile(
    r"torchvision\.models\.(\w+\.)*((wide_)?resnet\d|resnext\d|densenet\d|mobilenet_v|mnasnet\d|"
    r"efficientnet_|shufflenet_|regnet_|googlenet|inception_v3|vgg\d+_bn)\w*"
)


def look(training: Training) -> Iterator[Found]:
    """Find DDP around a model with batch norm, trained with few samples per rank."""
    text = "\n".join(script.text for script in training.project.scripts)
    if _SEEN_TO.search(text) or not training.on_gpus:
        return
    batches = [_batch(loader) for loader in training.loaders if loader.trains]
    if not batches or not all(0 < batch <= SMALL for batch in batches):
        return
    for wrap in training.copies:
        model = wrap.model
        if model is not None and _has_batch_norm(training, wrap.script, model, DEPTH):
            reason = f"batch norm sees only the {max(batches)} samples of its own rank"
            yield Found(wrap.script, wrap.call, reason, certain=False)


def _batch(loader: Loader) -> int:
    """Return the samples per rank and batch, or 0 if the source does not show them."""
    values = loader.constants("batch_size")
    known = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    return max(known) if known and len(known) == len(values) else 0


def _has_batch_norm(training: Training, script: Script, node: cst.CSTNode, depth: int) -> bool:
    """Return whether a model contains batch norm, directly or in a class of the project."""
    for origin in training.project.origins(script, node) if depth else ():
        made = maker(origin.node)
        if made is not origin.node and not isinstance(made, cst.Call):
            if _has_batch_norm(training, origin.script, made, depth - 1):
                return True
        elif any(_brings(training, origin.script, call, set()) for call in _calls(made)):
            return True
    return False


def _calls(node: cst.CSTNode) -> Iterator[cst.Call]:
    return (part for part in walk(node) if isinstance(part, cst.Call))


def _brings(training: Training, script: Script, call: cst.Call, seen: set[cst.CSTNode]) -> bool:
    """Return whether a call creates batch norm, itself or in a definition of the project."""
    name = training.project.name(script, call.func) or ""
    if _LAYER.fullmatch(name):
        return True
    if _TORCHVISION.fullmatch(name):
        return argument(call, "norm_layer") is None
    made = training.project.definition(script, call.func)
    if made is None or made[1] in seen:
        return False
    seen.add(made[1])
    return any(_brings(training, made[0], inner, seen) for inner in _calls(made[1].body))
