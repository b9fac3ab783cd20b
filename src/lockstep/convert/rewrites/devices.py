"""Let every process keep the GPU that it was given: it is the only one that it sees."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.work import Work
from lockstep.source.tree import constant

ORDER = 30
_OTHER = re.compile(r"(['\"])cuda:[1-9]\d*\1")


def rewrite(work: Work) -> None:
    """Replace GPUs with a number above 0, and leave CUDA_VISIBLE_DEVICES alone."""
    for script in work.scripts:
        work.script = script
        for node in list(script.order):
            if isinstance(node, cst.SimpleString) and _OTHER.fullmatch(node.value):
                first = re.sub(r"\d+", "0", node.value)
                world = work.use("WORLD_SIZE")
                work.draft.replace(node, f"({node.value} if {world} == 1 else {first})")
                work.done("device", node, "each process sees one GPU, which is number 0")
            elif isinstance(node, cst.Assign) and "CUDA_VISIBLE_DEVICES" in script.code(
                node.targets[0]
            ):
                work.draft.under(f"if {work.use('WORLD_SIZE')} == 1:", [work.statement(node)])
                work.done("device", node, "each process has its GPU already")
        for call in script.calls:
            _call(work, call)
            if work.seen.numbered_gpu:
                _chosen(work, call)


def _chosen(work: Work, call: cst.Call) -> None:
    """Replace the GPU that a setting names, in `torch.device(setting)`."""
    if work.project.name(work.script, call.func) != "torch.device" or not call.args:
        return
    given = call.args[0].value
    if len(call.args) == 1 and not isinstance(given, cst.SimpleString):
        work.draft.around(given, f"{work.use('own_gpu')}(")
        work.done("device", call, "each process sees one GPU, which is number 0")


def _call(work: Work, call: cst.Call) -> None:
    name = work.project.name(work.script, call.func) or ""
    last = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    given = call.args[0].value if call.args else None
    if last == "cuda" or name == "torch.cuda.set_device" or (last == "to" and len(call.args) == 1):
        number = constant(given) if given is not None else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            assert given is not None
            world = work.use("WORLD_SIZE")
            work.draft.replace(given, f"({number} if {world} == 1 else 0)")
            work.done("device", call, "each process sees one GPU, which is number 0")
