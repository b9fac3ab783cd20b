"""List what lockstep understood of a script, with line numbers."""

from __future__ import annotations

import libcst as cst

from lockstep.convert.analysis.batch_kinds import kinds
from lockstep.convert.analysis.loop_effects import left_by
from lockstep.convert.analysis.parts import Parts
from lockstep.convert.work import Note, Work
from lockstep.source.gradients import is_backward
from lockstep.source.loss import loss_of
from lockstep.source.outputs import SAVES


def understood(work: Work) -> list[Note]:
    """Return notes on models, optimizers, data, loops, losses, metrics and saves."""
    parts, script = work.parts, work.script
    found = [Note(work.line(m.made), f"model {m.name}") for m in parts.models if m.script is script]
    for optimizer in parts.optimizers:
        if optimizer.script is script:
            models = ", ".join(dict.fromkeys(m.name for m in optimizer.models))
            name = script.code(optimizer.call.func).rsplit(".", 1)[-1]
            found.append(Note(work.line(optimizer.call), f"optimizer {name} of {models or '?'}"))
    found += _data(work, parts)
    found += _metrics(work, parts)
    for call in script.calls:
        if is_backward(script, call) and (loss := loss_of(call)) is not None:
            kind = "/".join(sorted(kinds(work, script, loss)))
            found.append(Note(work.line(call), f"loss {script.code(loss)}, over the batch: {kind}"))
    for where, call in parts.project.calls(*SAVES):
        if where is script:
            found.append(Note(work.line(call), "save"))
    return sorted(set(found), key=lambda note: (note.line, note.text))


def _data(work: Work, parts: Parts) -> list[Note]:
    found = []
    for loaders, use in ((parts.trained_on, "training"), (parts.evaluated_on, "evaluation")):
        for loader in loaders:
            if loader.script is not work.script:
                continue
            found.append(Note(work.line(loader.call), f"{use} data {loader.name or 'loader'}"))
            found += [
                Note(work.line(loop.node), f"{use} loop over {loader.name or 'loader'}")
                for loop in loader.loops
                if loop.script is work.script
            ]
    if not parts.trained_on:
        found += [
            Note(work.line(loop), "training loop without a DataLoader")
            for script, loop, acts in parts.turns
            if script is work.script
            and any(act.kind == "backward" and not act.loops for act in acts)
        ]
    return found


def _metrics(work: Work, parts: Parts) -> list[Note]:
    """Return notes on what loops over batches sum up or collect and later code reads."""
    script = work.script
    loops = {loop.node for x in (*parts.trained_on, *parts.evaluated_on) for loop in x.loops}
    found = []
    for loop in (node for node in script.order if node in loops and isinstance(node, cst.For)):
        left = left_by(work, script, loop)
        if left.names:
            found.append(Note(work.line(loop), f"metrics {', '.join(left.names)}"))
    return found
