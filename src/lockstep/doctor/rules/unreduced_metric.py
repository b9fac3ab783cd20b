"""An unreduced metric: each rank judges the model by its own part of the data."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found
from lockstep.doctor.rules.local_count_over_global_length import global_divisions
from lockstep.source.loop_metrics import tallies
from lockstep.source.outputs import NOTES
from lockstep.source.ranks import guarded
from lockstep.source.script import Script
from lockstep.source.training import Training
from lockstep.source.tree import statements


def look(training: Training) -> Iterator[Found]:
    """Find evaluations of a part of the data whose result the ranks never reduce."""
    for loader in training.loaders:
        samplers, only = loader.split_by()
        if not samplers or not loader.evaluates:
            continue
        for tally in tallies(training, loader):
            if tally.reduced or not tally.known or not tally.uses:
                continue
            # One cause, one finding: that rule says more.
            if next(global_divisions(training, tally), None) is not None:
                continue
            decisions = [(s, n) for s, n in tally.uses if _decides(s, n)]
            script, node = (decisions or tally.uses)[0]
            reason = (
                "the ranks decide by different values: each computes this from its own samples only"
                if decisions and not guarded(training.project, script, node)
                else "this value covers only one rank's samples, not the whole data set"
            )
            yield Found(script, node, reason, certain=only)


def _decides(script: Script, node: cst.CSTNode) -> bool:
    """Match a comparison, a scheduler's step or a check for early stopping."""
    if not isinstance(node, cst.Call):
        branch = next((p for p in script.above(node) if isinstance(p, cst.If)), None)
        if branch is None or not isinstance(branch.body, cst.IndentedBlock):
            return True
        # A branch that only prints decides nothing.
        return not all(_prints(script, part) for part in statements(branch.body))
    called = script.code(node).split("(")[0].rsplit(".", 1)[-1]
    return called == "step" or "stop" in called.lower()


def _prints(script: Script, node: cst.CSTNode) -> bool:
    call = node.value if isinstance(node, cst.Expr) else None
    if not isinstance(call, cst.Call):
        return False
    return NOTES.match(script.code(call.func).rsplit(".", 1)[-1]) is not None
