"""Wrap models in DDP when they are ready, and unwrap them where DDP is in the way."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import block_of, statement_of
from lockstep.convert.analysis.models import Model
from lockstep.convert.work import Work
from lockstep.convert.wrapping import (
    CONVERT,
    PARALLEL,
    after_wrap,
    each,
    has_norm,
    synchronised,
    wrapped,
)
from lockstep.errors import ConvertError
from lockstep.source.accumulation import is_one, windows
from lockstep.source.tree import dotted

ORDER = 100
_THROUGH = {
    "parameters", "named_parameters", "train", "eval", "zero_grad", "to", "cuda", "cpu", "modules",
    "named_modules", "children", "named_children", "buffers", "named_buffers", "training",
    "requires_grad_", "half", "float", "double", "bfloat16", "apply", "register_forward_hook",
    "no_sync", "module", "register_comm_hook", "__class__",
}  # fmt: skip
"""Attributes that work on a wrapped model as well."""
_OUTSIDE = re.compile(
    r"(torch\.save|torch\.onnx|torch\.jit|torch\.optim\.swa_utils\.AveragedModel|copy\.|save_model|"
    r"\w*summary)"
)


def rewrite(work: Work) -> None:
    """Wrap every model that is trained."""
    parts = work.parts
    if not parts.models:
        raise ConvertError(
            "lockstep found no model whose parameters an optimizer is given"
            + (f" (the search ended at {parts.lost[0]})" if parts.lost else "")
            + ". Make the model and its optimizer in this script."
        )
    _drop_parallel(work)
    for model in parts.models:
        if model.script is not work.script:
            raise ConvertError(
                f"{model.script.path.name} makes the model, line "
                f"{model.script.place(model.made).start.line}. Convert that file, or make it here."
            )
        if model.many:
            _check_members(work, model)
        _wrap(work, model)
        _unwrap(work, model)


def _check_members(work: Work, model: Model) -> None:
    """Refuse uses of a container's models that wrapping its elements would not reach."""
    script = work.script
    scope = script.scope_of(model.made)
    for value in (
        b.value for found in scope.bindings.values() for b in found if b.kind == "assign"
    ):
        named = isinstance(value, cst.Subscript) and dotted(value.value) == model.name
        if value is not None and named and not after_wrap(work, model, value):
            raise ConvertError(
                f"line {work.line(value)}: {script.code(value)} gets another name before DDP can "
                f"wrap it. Use {script.code(value)} everywhere, or variables only."
            )
    training = work.parts.training
    for window in windows(training):
        if not is_one(training, window):
            raise ConvertError(
                f"line {work.line(window.loop)}: gradients of several models in {model.name} "
                "accumulate over batches. Give each model its own variable."
            )


def _wrap(work: Work, model: Model) -> None:
    work.need("DistributedDataParallel")
    lines = []
    if has_norm(work):
        if work.options.sync_batch_norm:
            work.need("torch")
            lines.append(synchronised(each(model, CONVERT), f"{model.name} = "))
            what = (
                "batch norm sees the whole batch, as on one GPU; all processes have its statistics"
            )
            work.done("wrap", model.ready, what)
            work.note(
                model.ready,
                "on the CPU, batch norm sees only the samples of its process: torch has "
                "SyncBatchNorm for GPUs only",
            )
        else:
            work.note(model.ready, "batch norm sees only the samples of its process")
    lines.append(f"{model.name} = {each(model, wrapped(work, '{}'))}")
    work.draft.after(model.ready, work.several("\n".join(lines)))
    work.done("wrap", model.ready, f"{model.name} is ready here: DDP averages its gradients")


def _drop_parallel(work: Work) -> None:
    """Remove DataParallel, which DDP replaces."""
    for script, call in work.project.calls(*PARALLEL):
        if script is not work.script or not call.args:
            continue
        inner = script.code(call.args[0].value)
        statement = statement_of(script, call)
        block = block_of(script, statement)
        text = script.code(statement).split("#")[0].strip()
        if text.startswith(f"{inner} = ") and len(block) > 1:
            work.draft.remove(statement)
        else:
            work.draft.replace(call, inner)
        reason = "DDP replaces DataParallel, which uses one process for several GPUs"
        work.done("wrap", call, reason)


def _unwrap(work: Work, model: Model) -> None:
    """Use the bare model for attributes and calls that DDP does not support."""
    script = work.script
    for node in list(script.order):
        if not isinstance(node, cst.Name | cst.Attribute | cst.Subscript):
            continue
        parent = script.parents.get(node)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            if parent.attr.value in _THROUGH:
                continue
        elif not _handed_outside(work, node):
            continue
        if not after_wrap(work, model, node):
            continue
        if work.parts.is_model(script, node) is model:
            work.need("bare")
            work.draft.replace(node, f"{work.bare}({script.code(node)})")
            what = script.code(parent) if isinstance(parent, cst.Attribute) else script.code(node)
            work.done("wrap", node, f"{what} needs the model itself, without DDP")


def _handed_outside(work: Work, node: cst.CSTNode) -> bool:
    """Return whether a node is passed to `torch.save(model, path)` or a similar call."""
    script = work.script
    arg = script.parents.get(node)
    call = script.parents.get(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or (isinstance(arg, cst.Arg) and arg.value is not node):
        return False
    name = work.project.title(script, call.func)
    return _OUTSIDE.match(name) is not None
