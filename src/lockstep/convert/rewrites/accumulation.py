"""Accumulate gradients locally: reduce them once per step, not once per backward."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import block_of, statement_of
from lockstep.convert.work import Work
from lockstep.source.accumulation import Window, is_one, windows
from lockstep.source.tree import walk

ORDER = 150


def rewrite(work: Work) -> None:
    """Put `no_sync` around all backwards of a step but the last."""
    script = work.script
    done: set[cst.CSTNode] = set()
    for window in windows(work.parts.training):
        if is_one(work.parts.training, window) or window.backward.call in done:
            continue
        done.add(window.backward.call)
        run = _from_forward_to_backward(work, window)
        if run is None or window.test is None:
            why = "DDP reduces gradients in every backward, which is right but slow"
            work.note(window.loop, why)
            continue
        work.need("nullcontext")
        model = work.parts.models[0].name
        sync = work.fresh("sync")
        test = script.code(window.test.test)
        work.draft.before(run[0], f"{sync} = {work.world} == 1 or ({test})")
        work.draft.under(f"with nullcontext() if {sync} else {model}.no_sync():", run)
        work.done("accumulation", run[0], "DDP reduces gradients in the last backward of a step")


def _from_forward_to_backward(work: Work, window: Window) -> list[cst.CSTNode] | None:
    """Return the statements from the model's call to the backward, if the step's `if` follows."""
    script, test, backward = work.script, window.test, window.backward
    if test is None or len(work.parts.models) != 1:
        return None
    if backward.script is not script or window.step.script is not script:
        return None
    last = statement_of(script, backward.call)
    block = block_of(script, last)
    end = block.index(last)
    decides = statement_of(script, test)
    if decides not in block or block.index(decides) < end:
        return None
    forward = (
        number
        for number, statement in enumerate(block[:end])
        if any(
            isinstance(part, cst.Call) and work.parts.is_model(script, part.func)
            for part in walk(statement)
        )
    )
    return block[next(forward, end) : end + 1]
