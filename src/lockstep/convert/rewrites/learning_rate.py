"""Adapt the learning rate if each process keeps its batch and the global batch grows."""

from __future__ import annotations

import re

from lockstep.convert.work import Work
from lockstep.source.tree import argument

ORDER = 160
_ROOT = re.compile(r"Adam|NAdam|RAdam|RMSprop|Adagrad|LAMB|AdamW")


def rewrite(work: Work) -> None:
    """Scale linearly for SGD, by the square root for Adam and its relatives."""
    if not work.options.scale_batch:
        return
    for optimizer in work.parts.optimizers:
        if optimizer.script not in work.drafts:
            continue
        work.script = optimizer.script
        rate = argument(optimizer.call, "lr", 1)
        name = work.script.code(optimizer.call.func)
        if rate is None:
            work.note(optimizer.call, "adapt the learning rate to the larger batch")
            continue
        root = _ROOT.search(name) is not None
        world = work.use("WORLD_SIZE")
        factor = f"{world} ** 0.5" if root else world
        text = work.script.code(rate)
        plain = re.fullmatch(r"[\w.]+|.*[)\]]", text)
        work.draft.replace(rate, f"{text if plain else f'({text})'} * {factor}")
        rule = "with its square root" if root else "in proportion"
        reason = f"the global batch grows with the processes, the rate {rule}"
        work.done("rate", optimizer.call, reason)
