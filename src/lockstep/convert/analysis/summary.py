"""List what lockstep understood of a program, with line numbers."""

from __future__ import annotations

from lockstep.convert.analysis.batch_kinds import kinds
from lockstep.convert.work import Note, Work
from lockstep.probes.spans import Span
from lockstep.source.gradients import is_backward
from lockstep.source.loss import loss_of


def understood(work: Work) -> list[Note]:
    """Return notes on data, models, optimizers and losses."""
    found: list[Note] = []

    def at(span: Span, text: str) -> None:
        call = work.at(span)
        if call is not None:
            name = "" if work.script is work.entry else work.script.path.name
            found.append(Note(work.line(call), text, name))

    for loader in work.seen.loaders:
        at(loader.span, "training data")
    for span in work.seen.evaluated:
        at(span, "data to look at: every process goes through all of them")
    for forward in work.seen.forwards:
        at(forward.span, "a model learns here" if forward.learns else "a model is only called")
    for acts in work.seen.acts:
        for what, span in acts:
            if what == "step":
                at(span, "step of an optimizer")
    for script in work.scripts:
        work.script = script
        name = "" if script is work.entry else script.path.name
        for call in script.calls:
            loss = loss_of(call) if is_backward(script, call) else None
            if loss is not None and work.parts.training.used(script, call):
                kind = "/".join(sorted(kinds(work, script, loss)))
                text = f"loss {script.code(loss)}, over the batch: {kind}"
                found.append(Note(work.line(call), text, name))
    return sorted(set(found), key=lambda note: (note.file, note.line, note.text))
