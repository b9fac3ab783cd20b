"""Join the process group before the script makes data and models."""

from __future__ import annotations

import re

from lockstep.convert.work import Work

ORDER = 10
SEEDING = {"seed_everything", "set_seed", "fix_seed", "setup_seed", "set_random_seed", "seed_all"}
OF_THEIR_OWN = {"default_rng", "Generator", "RandomState", "SeedSequence", "Random", "SystemRandom"}
"""Generators that a common seed does not reach."""


def rewrite(work: Work) -> None:
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
