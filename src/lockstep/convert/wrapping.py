"""Helpers that wrap a model in DDP, for several rewrites."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.models import Model
from lockstep.convert.work import Work

_NORM = re.compile(
    r"\bBatchNorm[123]d\b|\bSyncBatchNorm\b|\btimm\.|\btorch\.hub\.load"
    r"|\bmodels\.(resnet|resnext|wide_resnet|densenet|mobilenet|efficientnet|inception|googlenet"
    r"|regnet|shufflenet|mnasnet|squeezenet|segmentation|vgg\d+_bn)"
)
"""Batch norm, also inside the usual models of libraries."""
_LIBRARIES = re.compile(r"(torchvision|timm|segmentation_models|efficientnet|pretrainedmodels)\b")
CONVERT = "torch.nn.SyncBatchNorm.convert_sync_batchnorm({})"
PARALLEL = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
)


def each(model: Model, text: str) -> str:
    """Return the text that applies to a model, or to each of several."""
    if model.many == "list":
        return f"[{text.format('model')} for model in {model.name}]"
    if model.many == "dict":
        return f"{{key: {text.format('model')} for key, model in {model.name}.items()}}"
    return text.format(model.name)


def synchronised(converted: str, kept: str = "") -> str:
    """Return lines that synchronise batch norm where torch can: not on the CPU."""
    return f"if torch.cuda.is_available():\n\t{kept}{converted}"


def wrapped(work: Work, model: str) -> str:
    """Return an expression for a model in DDP."""
    options = ""
    if (has_norm(work) and work.options.sync_batch_norm) or _has_buffers(work):
        # Buffers are equal everywhere. DDP would send them before every forward, also in
        # evaluation, where the processes may have different numbers of batches.
        options = ", broadcast_buffers=False"
    return f"DistributedDataParallel({model}{options})"


def has_norm(work: Work) -> bool:
    """Return whether a model may have batch norm: in the source, or in a library's model."""
    if any(_NORM.search(script.text) for script in work.project.scripts):
        return True
    return any(
        _LIBRARIES.match(work.project.name(model.script, call.func) or "")
        for model in work.parts.models
        for call in model.calls
    )


def _has_buffers(work: Work) -> bool:
    return not _NORM.search("".join(s.text for s in work.project.scripts)) and any(
        "register_buffer" in script.text for script in work.project.scripts
    )


def after_wrap(work: Work, model: Model, node: cst.CSTNode) -> bool:
    """Return whether the model is wrapped when a node runs: below the wrap, or in a function."""
    script = work.script
    if script.function_of(node) is not script.function_of(model.ready):
        return True
    return script.order[node] > script.last(model.ready)
