"""What training sums up to be shown or decided on: added up over all processes."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.blocks import statement_of
from lockstep.convert.rewrites.loss import MEAN, SUM
from lockstep.convert.rewrites.validation import COUNT, is_read_later, kind_of_sum, sums_of
from lockstep.convert.work import Work


def rewrite(work: Work) -> None:
    """After every loop over batches that trains."""
    for script, loop, acts in work.parts.turns:
        direct = any(act.kind == "backward" and not act.loops for act in acts)
        if script is not work.script or not direct or not isinstance(loop, cst.For):
            continue
        lines, names = [], []
        for name, part in sums_of(loop).items():
            kind = kind_of_sum(work, script, part)
            if kind == COUNT or not is_read_later(script, loop, name):
                continue
            if kind not in (SUM, MEAN):
                work.note(part, f"{name} is that of one process")
                continue
            mean = f" / {work.world}" if kind == MEAN else ""
            lines.append(f"{name} = {work.all_sum}({name}){mean}")
            names.append(name)
        if lines:
            work.need("all_sum")
            work.draft.after(statement_of(script, loop), "\n".join(lines))
            work.done("metrics", loop, f"{', '.join(names)}: that of all processes, not of one")
