"""Every rank writes the same log, table or picture: lines mix, or the last writer wins."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.every_rank import differs_by_rank, on_every_rank
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import argument, constant

_PATHS = {
    "torch.utils.tensorboard.SummaryWriter": ("log_dir", 0),
    "torch.utils.tensorboard.writer.SummaryWriter": ("log_dir", 0),
    "tensorboardX.SummaryWriter": ("logdir", 0),
    "logging.FileHandler": ("filename", 0),
    "logging.handlers.RotatingFileHandler": ("filename", 0),
    "logging.basicConfig": ("filename", None),
    "numpy.save": ("file", 0),
    "numpy.savez": ("file", 0),
    "numpy.savez_compressed": ("file", 0),
    "numpy.savetxt": ("fname", 0),
    "torchvision.utils.save_image": ("fp", 1),
    "matplotlib.pyplot.savefig": ("fname", 0),
    "cv2.imwrite": ("filename", 0),
    "wandb.init": ("project", None),
}
"""Calls that write, and the argument that holds the path."""
_METHODS = {"to_csv": 0, "write_text": None, "savefig": 0}
"""Methods that write on any object, and the position of their path."""
_WRITES = re.compile(r"[wax]")
_FETCHES = re.compile(r"urlopen|requests\.get|urlretrieve|iter_content")
"""Downloads, which every_rank_downloads reports."""


def look(training: Training) -> Iterator[Found]:
    """Find calls that open or write a file on every rank, at one path; one for each function."""
    seen: set[cst.CSTNode | None] = set()
    for script in training.project.scripts:
        for call in script.calls:
            path = _path(training, script, call)
            if path is None or script.function_of(call) in seen:
                continue
            if _is_own(training, script, call, path) or not on_every_rank(training, script, call):
                continue
            seen.add(script.function_of(call))
            yield Found(script, call, "every rank writes to the same place", certain=False)


def _path(training: Training, script: Script, call: cst.Call) -> cst.BaseExpression | None:
    """Return the path that a call writes to; of calls without one, the function that is called."""
    if isinstance(call.func, cst.Name) and call.func.value == "open":
        mode = argument(call, "mode", 1)
        values = training.project.constants(script, mode) if mode is not None else []
        writes = any(isinstance(v, str) and _WRITES.search(v) for v in values)
        return argument(call, "file", 0) if writes else None
    name = training.project.name(script, call.func) or ""
    if name in _PATHS:
        key, place = _PATHS[name]
        given = argument(call, key, place)
        if given is None and name != "logging.basicConfig":
            return call.func
        return given
    last = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    if last in _METHODS and isinstance(call.func, cst.Attribute):
        place = _METHODS[last]
        return call.func.value if place is None else argument(call, "path_or_buf", place)
    return None


def _is_own(training: Training, script: Script, call: cst.Call, path: cst.CSTNode) -> bool:
    """Return whether each rank writes a file of its own, or one for each sample."""
    if constant(path) is None or differs_by_rank(training, script, path):
        return True
    if any(differs_by_rank(training, script, arg.value) for arg in call.args):
        return True
    owner = script.class_of(call)
    if owner is not None and script.methods(owner, "__getitem__"):
        # A data set that keeps what it has read.
        return True
    function = script.function_of(call)
    return function is not None and _FETCHES.search(script.code(function)) is not None
