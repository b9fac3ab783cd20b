"""Join the process group before the script makes data and models, and leave it on every way out."""

from __future__ import annotations

import re

import libcst as cst

from lockstep.convert.analysis.blocks import calls_in, is_main_guard, statement_of
from lockstep.convert.work import Work
from lockstep.source.tree import walk_shallow

ORDER = 10
SEEDING = {"seed_everything", "set_seed", "fix_seed", "setup_seed", "set_random_seed", "seed_all"}
OF_THEIR_OWN = {"default_rng", "Generator", "RandomState", "SeedSequence", "Random", "SystemRandom"}
"""Generators that a common seed does not reach."""
# Without the barrier, gloo sometimes aborts a process after another one has left.
_LEAVE = "if {}:\n\tdist.barrier()\n\tdist.destroy_process_group()"


def rewrite(work: Work) -> None:
    """Join the group where the program begins its work, and leave it where it ends."""
    _join(work)
    _leave(work)


def _join(work: Work) -> None:
    """Join the group where the program begins its work."""
    work.need("torch", "dist")
    begin = work.parts.beginning
    seed = "".join(f"\t{line}\n" for line in _common_seeds(work))
    work.draft.before(
        begin,
        f"if {work.world} > 1:\n"
        "\tif torch.cuda.is_available():\n"
        f"\t\ttorch.cuda.set_device({work.local_rank})\n"
        f"\tdist.init_process_group()\n{seed}",
    )
    more = "; the script sets no seed, so they share one for common draws" if seed else ""
    work.done(
        "process_group",
        begin,
        "under torchrun, the processes join here, each on its own GPU; under python, nothing "
        f"happens{more}",
    )


def _common_seeds(work: Work) -> list[str]:
    """Return the lines that set common seeds, for generators that the script does not seed."""
    last = {work.script.code(call.func).rsplit(".", 1)[-1] for call in work.script.calls}
    every = {work.script.code(call.func) for call in work.script.calls}
    if last & SEEDING:
        return []
    found = [] if "manual_seed" in last else ["torch.manual_seed(0)"]
    for module in ("random", "np.random", "numpy.random"):
        begun = [name for name in every if name.startswith(f"{module}.")]
        drawn = {re.split(r"\W", name.removeprefix(f"{module}."))[0] for name in begun}
        if drawn - OF_THEIR_OWN and ("seed" not in drawn or _draws_first(work, module)):
            found.append(f"{module}.seed(0)")
    return found


def _draws_first(work: Work, module: str) -> bool:
    """Return whether a script draws its own seed, as in `random.seed(random.randint(1, 10000))`."""
    here = work.script.function_of(work.parts.beginning)
    calls = [call for call in work.script.calls if work.script.function_of(call) is here]
    # In the order in which they run: inner calls end first.
    ends = {call: work.script.place(call).end for call in calls}
    calls.sort(key=lambda call: (ends[call].line, ends[call].column))
    names = [work.script.code(call.func) for call in calls]
    used = [name for name in names if name.startswith(f"{module}.")]
    return bool(used) and not used[0].endswith((".seed", *OF_THEIR_OWN))


def _leave(work: Work) -> None:
    """Leave at the end, or after the call of a function that has several ways out."""
    leave = _LEAVE.format(f"{work.world} > 1")
    last = work.parts.entry[-1]
    if is_main_guard(last):
        assert isinstance(last, cst.If)
        last = last.body.body[-1]
    returns = _returns(work)
    # A return before the end, or one that still computes something.
    early = any(r is not last or any(True for _ in calls_in(r)) for r in returns)
    call = _call(work) if early else None
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
    parts = walk_shallow(function.body) if function is not None else ()
    return [statement_of(work.script, part) for part in parts if isinstance(part, cst.Return)]


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
