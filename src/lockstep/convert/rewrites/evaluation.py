"""Divide evaluations: each process computes some rows of a batch, and all get the outputs."""

from __future__ import annotations

from lockstep.convert.work import Work

ORDER = 25


def rewrite(work: Work) -> None:
    """Put `spread` around models that are evaluated batch by batch."""
    if not (work.options.spread and work.options.sync_batch_norm and work.seen.loaders):
        return
    for span in work.seen.evaluates:
        call = work.at(span)
        if call is not None:
            work.draft.around(call.func, f"{work.use('spread')}(")
            work.done("evaluation", call, "each process computes its rows, and all get the outputs")
