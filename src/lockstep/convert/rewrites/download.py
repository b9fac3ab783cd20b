"""Let the first process of each host download or make files while the others wait."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import block_of, statement_of
from lockstep.convert.analysis.files_before_training import awaited, prepared, within
from lockstep.convert.work import Work
from lockstep.source.tree import argument, constant

ORDER = 40


def rewrite(work: Work) -> None:
    """Put barriers around downloads and around code that makes files, and after shared files."""
    blocks: dict[cst.CSTNode, list[cst.CSTNode]] = {}
    for call in work.script.calls:
        if constant(argument(call, "download")) is True:
            statement = statement_of(work.script, call)
            blocks.setdefault(work.script.parents[statement], []).append(statement)
    fetching: list[cst.CSTNode] = []
    for statements in blocks.values():
        first, last = statements[0], statements[-1]
        between = block_of(work.script, first)
        between = between[between.index(first) : between.index(last) + 1]
        if any(isinstance(s, cst.FunctionDef | cst.ClassDef) for s in between):
            last = first
        _in_turn(work, first, last)
        fetching += between
        work.done("download", first, "the first process of each host downloads, the others wait")
    busy = within(work, fetching)
    made = [statement for statement in prepared(work) if statement not in busy]
    for statement in made:
        _in_turn(work, statement, statement)
        work.done("download", statement, "the first process of each host makes it, the others wait")
    for statement in awaited(work, busy | within(work, made)):
        work.draft.after(statement, work.several("dist.barrier()"))
        work.done("download", statement, "all processes wait until the file is written")


def _in_turn(work: Work, first: cst.CSTNode, last: cst.CSTNode) -> None:
    """Let the first process of a host run statements before the others do."""
    work.draft.before(first, f"if {work.local_rank} > 0:\n\tdist.barrier()")
    work.draft.after(last, f"if {work.world} > 1 and {work.local_rank} == 0:\n\tdist.barrier()")
