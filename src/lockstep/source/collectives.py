"""Find calls that combine the values of several ranks."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.source.project import Project
from lockstep.source.script import Script

_NAMES = (
    "all_reduce", "barrier", "monitored_barrier", "broadcast", "broadcast_object_list",
    "all_gather", "all_gather_object", "all_gather_into_tensor", "reduce", "gather",
    "gather_object", "scatter", "scatter_object_list", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "new_group",
)  # fmt: skip
COLLECTIVES = [f"torch.distributed.{name}" for name in _NAMES]
_REDUCTION = re.compile(
    r"reduce(?!_?lr|_?on)|gather|synch|sync_(?!batch|bn)|_sync|broadcast|aggregate|across|"
    r"(dist|ddp|world|global)_?(mean|avg|average|sum|acc)",
    re.I,
)
_NO_REDUCTION = re.compile(r"no_sync|sync_?batch|functools|einops|\bcuda\b|numpy|\bnp\b", re.I)
_OF_A_GROUP = re.compile(r"dist|accelerat|fabric|comm|hvd|horovod|group|strategy|ctx|\bxm\b", re.I)


def is_reduction(project: Project, script: Script, node: cst.CSTNode) -> bool:
    """Return whether a call combines values of several ranks, judging by its name."""
    if not isinstance(node, cst.Call):
        return False
    last = script.code(node.func).rsplit(".", 1)[-1]
    if not _REDUCTION.search(last):
        return False
    name = project.title(script, node.func)
    if name.startswith("torch.distributed"):
        return True
    if _NO_REDUCTION.search(name):
        return False
    # Tensors have a gather too.
    return last not in ("gather", "reduce", "scatter_reduce") or bool(_OF_A_GROUP.search(name))
