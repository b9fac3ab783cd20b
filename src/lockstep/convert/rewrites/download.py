"""Downloads: the first process of each host fetches the data, the others wait for it."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.blocks import block_of, statement_of
from lockstep.convert.work import Work
from lockstep.source.tree import argument, constant


def rewrite(work: Work) -> None:
    """Barriers around the statements that may download."""
    found = [
        statement_of(work.script, call)
        for call in work.script.calls
        if constant(argument(call, "download")) is True
    ]
    blocks: dict[int, list[cst.CSTNode]] = {}
    for statement in found:
        blocks.setdefault(id(work.script.parents[statement]), []).append(statement)
    for statements in blocks.values():
        first, last = statements[0], statements[-1]
        between = block_of(work.script, first)
        between = between[between.index(first) : between.index(last) + 1]
        if any(isinstance(s, cst.FunctionDef | cst.ClassDef) for s in between):
            last = first
        work.draft.before(first, f"if {work.local_rank} > 0:\n\tdist.barrier()")
        work.draft.after(last, f"if {work.world} > 1 and {work.local_rank} == 0:\n\tdist.barrier()")
        work.done("download", first, "the first process of each host downloads, the others wait")
