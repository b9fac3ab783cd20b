"""Let the first process of each host download or make files while the others wait."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import block_of, statement_of
from lockstep.convert.work import Work
from lockstep.source.tree import argument, constant

ORDER = 190


def rewrite(work: Work) -> None:
    """Let the first process of a host go ahead where files are downloaded or made."""
    busy = work.made_files.nodes
    for script in work.scripts:
        work.script = script
        blocks: dict[cst.CSTNode, list[cst.CSTNode]] = {}
        for call in script.calls:
            if constant(argument(call, "download")) is True and call not in busy:
                statement = statement_of(script, call)
                blocks.setdefault(script.parents[statement], []).append(statement)
        for statements in blocks.values():
            first, last = statements[0], statements[-1]
            between = block_of(script, first)
            between = between[between.index(first) : between.index(last) + 1]
            if any(isinstance(s, cst.FunctionDef | cst.ClassDef) for s in between):
                last = first
            reason = "the first process of each host downloads, the others wait"
            _in_turn(work, first, last, reason)
    for script, statement in work.made_files.statements:
        work.script = script
        reason = "the first process of each host makes the files, the others wait"
        _in_turn(work, statement, statement, reason)


def _in_turn(work: Work, first: cst.CSTNode, last: cst.CSTNode, reason: str) -> None:
    """Let the first process of a host run statements before the others do."""
    work.draft.before(first, f"{work.use('wait_for_first')}()")
    work.draft.after(last, f"{work.use('first_is_done')}()")
    work.done("download", first, reason)
