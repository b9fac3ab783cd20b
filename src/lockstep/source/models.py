"""Find wrapped models, their parts, and whether they were moved to a device."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from lockstep.source.project import DEPTH, Project
from lockstep.source.script import Script
from lockstep.source.tree import argument, code, dotted, walk

WRAPPERS = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "apex.parallel.DistributedDataParallel",
)
CUTS = "FullyShardedDataParallel"
"""The wrapper that cuts the model in pieces; the others keep a copy of it on every rank."""
_OUTSIDE = re.compile(r"(torch\.nn|torchvision|timm|transformers)\.")
_DEVICE = re.compile(r"cuda|\.to\(|device")
_DEFAULT = re.compile(r"set_default_(device|tensor_type)|with torch\.device")


@dataclass(frozen=True, eq=False)
class Wrap:
    """A call that wraps a model for data parallelism."""

    script: Script
    call: cst.Call

    @property
    def model(self) -> cst.BaseExpression | None:
        """The model that is wrapped."""
        return argument(self.call, "module", 0)


class Model:
    """The model inside one wrap."""

    def __init__(self, project: Project, wrap: Wrap) -> None:
        self.project, self.wrap = project, wrap
        origins = project.origins(wrap.script, wrap.model) if wrap.model else []
        self.calls = {origin.call for origin in origins} - {None}

    def depth(self, script: Script, node: cst.CSTNode, most: int = DEPTH) -> int | None:
        """Return 0 for the model, wrapped or not, more for its parts, and None for other values."""
        parts = 0
        while True:
            if dotted(node) is not None and node in script.order:
                for origin in self.project.origins(script, node):
                    if origin.call is self.wrap.call or origin.call in self.calls:
                        return parts
                    if isinstance(origin.node, cst.Attribute) and origin.node is not node and most:
                        found = self.depth(origin.script, origin.node, most - 1)
                        if found is not None:
                            return parts + found
            if not isinstance(node, cst.Attribute):
                return None
            parts += node.attr.value != "module"
            node = node.value

    def was_moved(self) -> bool:
        """Return whether the model was, or may have been, on its device before the wrap."""
        script, model, project = self.wrap.script, self.wrap.model, self.project
        if model is None or any(_DEFAULT.search(s.text) for s in project.scripts):
            return True
        start = re.compile(re.escape(script.code(model)) + r"\.(to|cuda)\(")
        if _DEVICE.search(script.code(model)) or any(
            start.match(script.code(call)) and script.order[call] < script.order[self.wrap.call]
            for call in script.calls
        ):
            return True
        for origin in project.origins(script, model):
            if origin.call is None or _DEVICE.search(origin.script.code(origin.call)):
                return True
            made = project.definition(origin.script, origin.call.func)
            name = project.name(origin.script, origin.call.func) or ""
            if _DEVICE.search(made[0].code(made[1])) if made else not _OUTSIDE.match(name):
                return True
        return False


_BUFFERED = re.compile(r"BatchNorm|InstanceNorm|register_buffer|SpectralNorm|spectral_norm")
_WITH_BATCH_NORM = re.compile(r"(torchvision|timm|segmentation_models_pytorch|monai)\.")
_PASSES = ("to", "cuda", "train", "float", "half", "bfloat16", "requires_grad_")


def maker(node: cst.CSTNode) -> cst.CSTNode:
    """Return the `Net()` in `Net().to(device)`, and the model that torch.compile gets."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        last = node.func.attr.value
        if last in _PASSES:
            node = node.func.value
        elif last == "compile" and node.args:
            node = node.args[0].value
        else:
            break
    return node


def may_have_buffers(project: Project, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a model seems to have buffers, such as those of batch norm."""
    waiting = [(o.script, maker(o.node)) for o in project.origins(script, node)]
    seen: set[cst.CSTNode] = set()
    while waiting:
        where, part = waiting.pop()
        if isinstance(part, cst.Call):
            name = project.name(where, part.func)
            if project.definition(where, part.func) is None and not (name or "").startswith(
                "torch."
            ):
                if _WITH_BATCH_NORM.match(name or ""):
                    return True
                # A model that is chosen by its name may be any of the project's.
                return any(_BUFFERED.search(other.text) for other in project.scripts)
        for call in (n for n in walk(part) if isinstance(n, cst.Call)):
            name = project.name(where, call.func) or where.code(call.func)
            if _BUFFERED.search(name) or _WITH_BATCH_NORM.match(name):
                return True
            made_at = project.definition(where, call.func)
            if made_at is not None and made_at[1] not in seen:
                seen.add(made_at[1])
                waiting.append((made_at[0], made_at[1].body))
    return False


def inner_call(call: cst.Call) -> cst.Call | None:
    """Return `DDP(model)`, for `DDP(model).to(device)` and `torch.compile(DDP(model))`."""
    inner: cst.CSTNode | None = None
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("to", "cuda", "train"):
        inner = call.func.value
    elif call.args and code(call.func) in ("torch.compile", "compile"):
        inner = call.args[0].value
    return inner if isinstance(inner, cst.Call) else None
