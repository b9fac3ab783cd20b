"""Give every process its own GPU: no device has a fixed number."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import receiver, statement_of
from lockstep.convert.work import Work
from lockstep.source.script import Script
from lockstep.source.tree import constant, dotted

ORDER = 30
_FIRST = re.compile(r"(['\"])cuda:0\1")
_NUMBER = re.compile(r"(gpu|cuda)(_?(id|index|num|number))?$|(dev|device)_?(id|index)$", re.I)
_NUMBERED = re.compile(r".['\"]*cuda:")
_OTHER = re.compile(r"(['\"])cuda:\d+\1")


def rewrite(work: Work) -> None:
    """Replace `cuda:0` by `cuda`, which is the GPU of the process."""
    script = work.script
    for node in list(script.order):
        if isinstance(node, cst.SimpleString):
            if _in_map_location(work, node):
                continue
            if _FIRST.fullmatch(node.value):
                work.draft.replace(node, node.value.replace(":0", ""))
                reason = "cuda:0 is one GPU for all; cuda is the GPU of each process"
                work.done("device", node, reason)
            elif _OTHER.fullmatch(node.value):
                bare = re.sub(r":\d+", "", node.value)
                work.draft.replace(node, f"({node.value} if {work.world} == 1 else {bare})")
                work.done("device", node, "each process has its own GPU")
        elif isinstance(node, cst.FormattedString) and _NUMBERED.match(script.code(node)):
            for part in node.parts:
                if isinstance(part, cst.FormattedStringExpression):
                    work.draft.insert(part.expression, _or_own(work), behind=True)
                    work.done("device", node, "each process has its own GPU")
    for call in script.calls:
        _call(work, call)
    for node in script.order:
        if isinstance(node, cst.Assign) and "CUDA_VISIBLE_DEVICES" in script.code(node):
            work.need("os")
            work.draft.under('if "RANK" not in os.environ:', [statement_of(script, node)])
            work.done("device", node, "torchrun gives each process a GPU, and this would hide them")


def _call(work: Work, call: cst.Call) -> None:
    script = work.script
    name = work.project.name(script, call.func) or ""
    if receiver(call, "cuda") is not None and len(call.args) == 1:
        value = constant(call.args[0].value)
        if isinstance(value, int) and not isinstance(value, bool):
            work.draft.replace(call.args[0], "")
            work.done("device", call, "uses the GPU of the process instead of a fixed one")
        else:
            _numbered(work, call.args[0].value)
    elif receiver(call, "to") is not None and call.args:
        _numbered(work, call.args[0].value)
    elif name == "torch.device" and len(call.args) == 2 and constant(call.args[1].value) == 0:
        work.draft.replace(call.args[1], work.local_rank)
        work.done("device", call, "uses the GPU of the process instead of a fixed one")
    elif name == "torch.cuda.set_device":
        work.draft.under(f"if {work.world} == 1:", [statement_of(script, call)])
        work.done("device", call, "the process has its GPU already")


def _numbered(work: Work, given: cst.BaseExpression) -> None:
    """Replace the number of a GPU in `x.to(gpu)`."""
    script, name = work.script, dotted(given)
    if name is None:
        return
    found = [o.node for o in work.project.origins(script, given) if o.script is script]
    numbers = [node for node in found if not _is_default(script, node)]
    for number in numbers:
        if isinstance(number, cst.Integer) and number not in work.devices:
            work.devices.add(number)
            first = number.value == "0"
            other = f"{number.value}{_or_own(work)}"
            work.draft.replace(number, work.local_rank if first else other)
            work.done("device", number, "uses the GPU of the process instead of a fixed one")
    if _NUMBER.search(name) and not any(isinstance(n, cst.Integer | cst.Call) for n in numbers):
        work.draft.insert(given, _or_own(work), behind=True)
        work.done("device", given, "each process has its own GPU")


def _or_own(work: Work) -> str:
    """Return what follows a chosen GPU, for processes that each have their own."""
    return f" if {work.world} == 1 else {work.local_rank}"


def _is_default(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node is the default of a flag, which decides nothing."""
    parent = script.parents.get(node)
    return isinstance(parent, cst.Arg) and parent.keyword is not None


def _in_map_location(work: Work, node: cst.CSTNode) -> bool:
    for parent in work.script.above(node):
        if isinstance(parent, cst.Arg):
            return parent.keyword is not None and parent.keyword.value == "map_location"
        if isinstance(parent, cst.BaseSmallStatement):
            return False
    return False
