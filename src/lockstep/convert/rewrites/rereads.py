"""Wait for the first process before reading a file that it has written."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.work import Work

ORDER = 60


def rewrite(work: Work) -> None:
    """Put a barrier before what reads a file that the same run has written."""
    done: set[cst.CSTNode] = set()
    for span in work.seen.rereads:
        call = work.at(span)
        if call is None:
            continue
        statement = work.statement(call)
        if statement not in done:
            done.add(statement)
            work.draft.before(statement, f"{work.use('barrier')}()")
            work.done("files", call, "waits until the first process has written the file")
