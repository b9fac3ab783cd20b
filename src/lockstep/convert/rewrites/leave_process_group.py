"""Leave the process group on every way out of the program."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.blocks import calls_in, is_main_guard, statement_of
from lockstep.convert.work import Work
from lockstep.source.tree import walk_shallow

ORDER = 20
# Without the barrier, gloo sometimes aborts a process after another one has left.
_LEAVE = "if {}:\n\tdist.barrier()\n\tdist.destroy_process_group()"


def rewrite(work: Work) -> None:
    """Leave at the end, or after the call of a function that has several ways out."""
    leave = _LEAVE.format(f"{work.world} > 1")
    last = work.parts.entry[-1]
    if is_main_guard(last):
        assert isinstance(last, cst.If)
        last = last.body.body[-1]
    returns = _returns(work)
    call = _call(work) if any(_early(work, r, last) for r in returns) else None
    if call is not None:
        # The function may have returned before the process group existed.
        work.draft.after(call, _LEAVE.format("dist.is_initialized()"))
        last = call
    else:
        for statement in returns:
            if statement is not last and work.script.later(statement, work.parts.beginning):
                work.draft.before(statement, leave)
        if last in returns:
            work.draft.before(last, leave)
        else:
            work.draft.after(last, leave)
    work.done("process_group", last, "the processes leave the group here")


def _returns(work: Work) -> list[cst.CSTNode]:
    """Return the return statements of the function that does all the work."""
    function = work.script.function_of(work.parts.entry[0])
    if function is None:
        return []
    return [
        statement_of(work.script, part)
        for part in walk_shallow(function.body)
        if isinstance(part, cst.Return)
    ]


def _early(work: Work, statement: cst.CSTNode, last: cst.CSTNode) -> bool:
    """Return whether a return is not the last statement, or still computes something."""
    return statement is not last or any(True for _ in calls_in(statement))


def _call(work: Work) -> cst.CSTNode | None:
    """Return the statement that calls the function, if it is the only one and a plain statement."""
    function = work.script.function_of(work.parts.entry[0])
    uses = work.project.uses.get(function, []) if function else []
    if len(uses) != 1 or uses[0][0] is not work.script:
        return None
    statement = statement_of(work.script, uses[0][1])
    if work.script.function_of(statement) or not isinstance(statement, cst.SimpleStatementLine):
        return None
    (part,) = statement.body if len(statement.body) == 1 else (None,)
    plain = isinstance(part, cst.Expr | cst.Assign) and part.value is uses[0][1]
    return statement if plain else None
