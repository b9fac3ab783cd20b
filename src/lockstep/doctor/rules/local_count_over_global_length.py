"""One rank's count divided by the global length: N ranks report 1/N of the accuracy."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.source.loaders import Loader
from lockstep.source.loop_metrics import Tally, tallies
from lockstep.source.script import Script
from lockstep.source.training import Training

_REPLICAS = re.compile(r"world|replicas|nprocs|num_proc|n_?gpu|device_count", re.I)


def look(training: Training) -> Iterator[Found]:
    """Find counts of one rank that are divided by the length of the data set of all ranks."""
    for loader in training.loaders:
        samplers, only = loader.split_by()
        if not samplers:
            continue
        for tally in tallies(training, loader):
            if tally.reduced or not tally.known:
                continue
            reason = "this divides the count of one rank's samples by the number of all samples"
            for script, node in global_divisions(training, tally):
                yield Found(script, node, reason, certain=only)


def global_divisions(training: Training, tally: Tally) -> Iterator[tuple[Script, cst.CSTNode]]:
    """Yield the divisions by the length of the data set, not by the rank's share of it."""
    for script, node, divisor in tally.divisions:
        if _REPLICAS.search(script.code(script.statement_of(node))):
            continue
        for origin in training.project.origins(script, divisor):
            if origin.call is None or _REPLICAS.search(origin.script.code(origin.node)):
                continue
            if _is_length(training, origin.script, origin.call, tally.loop.loader):
                yield script, node
                break


def _is_length(training: Training, script: Script, call: cst.Call, loader: Loader) -> bool:
    """Match `len(loader.dataset)`, or the length of the data set that the loader was given."""
    if script.code(call.func) != "len" or len(call.args) != 1:
        return False
    measured = call.args[0].value
    project = training.project
    if isinstance(measured, cst.Attribute) and measured.attr.value == "dataset":
        return any(o.node is loader.place[1] for o in project.origins(script, measured.value))
    whole = [(o.node, o.index) for o in loader.origins("dataset")]
    return any((o.node, o.index) in whole for o in project.origins(script, measured))
