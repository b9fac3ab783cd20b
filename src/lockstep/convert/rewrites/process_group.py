"""The process group: joined before data and models are made, left at the end."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.blocks import is_main_guard
from lockstep.convert.work import Work

SEEDING = {"seed_everything", "set_seed", "fix_seed", "setup_seed", "set_random_seed", "seed_all"}


def rewrite(work: Work) -> None:
    """Join where the program begins its work, leave where it ends."""
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


def _common_seeds(work: Work) -> list[str]:
    """What to seed alike, as the script seeds nothing and draws from it."""
    last = {work.script.code(call.func).rsplit(".", 1)[-1] for call in work.script.calls}
    every = {work.script.code(call.func) for call in work.script.calls}
    if last & SEEDING:
        return []
    found = [] if "manual_seed" in last else ["torch.manual_seed(0)"]
    for module in ("random", "np.random", "numpy.random"):
        if any(name.startswith(f"{module}.") for name in every) and f"{module}.seed" not in every:
            found.append(f"{module}.seed(0)")
    return found
