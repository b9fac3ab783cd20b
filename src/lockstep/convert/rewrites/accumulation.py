"""Accumulate gradients locally: reduce them once per step, not once per backward."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import block_of, statement_of
from lockstep.convert.work import Work
from lockstep.source.accumulation import is_one, windows
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
        test, backward = window.test, window.backward
        if (
            test is None
            or len(work.parts.models) != 1
            or backward.script is not script
            or window.step.script is not script
        ):
            work.note(
                window.loop, "gradients travel with every part of a step, which is right but slow"
            )
            continue
        last = statement_of(script, backward.call)
        block = block_of(script, last)
        ends = block.index(last)
        first = ends
        for number, statement in enumerate(block[:ends]):
            if any(
                isinstance(part, cst.Call) and work.parts.is_model(script, part.func)
                for part in walk(statement)
            ):
                first = number
                break
        if (
            statement_of(script, test) not in block
            or block.index(statement_of(script, test)) < ends
        ):
            work.note(
                window.loop, "gradients travel with every part of a step, which is right but slow"
            )
            continue
        work.need("nullcontext")
        model = work.parts.models[0].name
        sync = work.fresh("sync")
        work.draft.before(block[first], f"{sync} = {work.world} == 1 or ({script.code(test.test)})")
        work.draft.under(
            f"with nullcontext() if {sync} else {model}.no_sync():", block[first : ends + 1]
        )
        work.done(
            "accumulation", block[first], "gradients travel with the last part of a step only"
        )
