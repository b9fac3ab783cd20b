"""The process group: joined before data and models are made, left at the end."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.blocks import is_main_guard
from lockstep.convert.work import Work


def rewrite(work: Work) -> None:
    """Join where the program begins its work, leave where it ends."""
    work.need("torch", "dist")
    begin = work.parts.beginning
    seed = "" if _seeds(work) else "\ttorch.manual_seed(0)\n"
    work.draft.before(
        begin,
        f"if {work.world} > 1:\n"
        "\tif torch.cuda.is_available():\n"
        f"\t\ttorch.cuda.set_device({work.local_rank})\n"
        f"\tdist.init_process_group()\n{seed}",
    )
    more = "; no seed is set, so they take a common one for what they draw alike" if seed else ""
    work.done(
        "process_group",
        begin,
        "started by torchrun, the processes meet here, each on its own GPU; started by python, "
        f"nothing happens{more}",
    )
    last = work.parts.entry[-1]
    if is_main_guard(last):
        assert isinstance(last, cst.If)
        last = last.body.body[-1]
    # Without the barrier gloo now and then aborts a process that another has left.
    leave = f"if {work.world} > 1:\n\tdist.barrier()\n\tdist.destroy_process_group()"
    if isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Return):
        work.draft.before(last, leave)
    else:
        work.draft.after(last, leave)
    work.done("process_group", last, "the processes part here")


def _seeds(work: Work) -> bool:
    """Whether the script sets torch's seed, or a helper does that is called so."""
    return any(
        work.script.code(call.func).rsplit(".", 1)[-1]
        in (
            "manual_seed",
            "seed_everything",
            "set_seed",
            "fix_seed",
            "setup_seed",
            "set_random_seed",
        )
        and not work.script.code(call.func).startswith("torch.Generator")
        for call in work.script.calls
    )
