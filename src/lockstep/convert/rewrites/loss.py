"""Scale losses that are sums over the batch, because DDP averages over the processes."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.batch_kinds import MASKED, MEAN, SUM, WEIGHTS, kinds
from lockstep.convert.work import Work
from lockstep.errors import ConvertError
from lockstep.source.gradients import is_backward
from lockstep.source.loss import loss_of

ORDER = 130


def rewrite(work: Work) -> None:
    """Multiply sums by the number of processes before backward."""
    for call in work.script.calls:
        if not is_backward(work.script, call):
            continue
        loss = loss_of(call)
        if loss is None:
            continue
        found = kinds(work, work.script, loss)
        line = work.line(call)
        found.discard(MASKED)
        if SUM in found and (MEAN in found or WEIGHTS in found):
            raise ConvertError(
                f"line {line}: part of the loss is a sum over the batch and part is not, so no "
                "single factor keeps its gradient. Make all of it means (reduction='mean'), or "
                "divide the sums by the number of samples."
            )
        if found == {SUM}:
            text = work.script.code(loss)
            whole = text if re.fullmatch(r"[\w.]+", text) else f"({text})"
            inside = isinstance(work.script.parents.get(loss), cst.Arg)
            scaled = f"{whole} * {work.world}"
            work.draft.replace(loss, scaled if inside else f"({scaled})")
            work.done(
                "loss",
                call,
                "the loss is a sum and DDP takes a mean, so it is scaled first",
            )
            continue
        rows = work.rows.get(work.script.function_of(call))
        if rows is not None:
            work.need("mean_of_all")
            work.draft.insert(loss, f"{work.mean_of_all}(")
            work.draft.insert(loss, f", {rows})", behind=True)
            work.done("loss", call, "each process counts by its rows: the last batch may be uneven")
        if found - {WEIGHTS} != {MEAN}:
            work.note(call, f"lockstep takes {work.script.code(loss)} for a mean over the batch")
