"""A metric is not reduced: each rank judges the model by its own part of the data."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from lockstep.doctor.findings import Found, Rule
from lockstep.doctor.rules.local_count_over_global_length import global_divisions
from lockstep.source.loop_metrics import tallies
from lockstep.source.training import Training


def look(training: Training) -> Iterator[Found]:
    """Evaluations over a part of the data whose result is used without asking the other ranks."""
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
            decisions = [(s, n) for s, n in tally.uses if _decides(s.code(n), n)]
            script, node = (decisions or tally.uses)[0]
            reason = (
                "the ranks decide by values that differ: this comes from one rank's samples only"
                if decisions
                else "this is the value of one rank's samples only, not of the whole data set"
            )
            yield Found(script, node, reason, certain=only)


def _decides(code: str, node: cst.CSTNode) -> bool:
    """A comparison, a scheduler's step or a check for early stopping."""
    if not isinstance(node, cst.Call):
        return True
    called = code.split("(")[0].rsplit(".", 1)[-1]
    return called == "step" or "stop" in called.lower()


RULE = Rule(
    name="unreduced_metric",
    code="LS09",
    summary="A metric that is not reduced shows one rank's samples, and the ranks disagree on it.",
    advice="Sum counts and totals with dist.all_reduce first, and divide after that.",
    look=look,
    handled_by=frozenset({"Lightning", "Hugging Face Trainer"}),
)
