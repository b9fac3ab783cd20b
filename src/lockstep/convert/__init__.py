"""Rewrite a training script for one GPU so that it runs on many.

analysis/   finds out what the script does
refuse/     reasons not to convert it, one per file
work        what the rewrites share: the parts of the script, the draft, the report
dividing    helpers that divide data and batches
wrapping    helpers that wrap models in DDP
rewrites/   one change per file
prelude     imports and helper functions at the top of the new script
verify/     runs both scripts and compares them
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import unified_diff

from lockstep.convert import prelude
from lockstep.convert.analysis.parts import Parts
from lockstep.convert.analysis.summary import understood
from lockstep.convert.refuse import refusals
from lockstep.convert.rewrites import all_rewrites
from lockstep.convert.work import Change, Note, Options, Work
from lockstep.errors import Already, ConvertError
from lockstep.source.programs import programs
from lockstep.source.reading import parse
from lockstep.source.script import Script
from lockstep.source.training import Training

__all__ = ["Change", "Conversion", "Note", "Options", "convert"]

_FIRST_LINE = re.compile(r"#!|#.*coding[:=]")


@dataclass(frozen=True)
class Conversion:
    """A script that was rewritten."""

    script: Script
    text: str
    understood: tuple[Note, ...]
    changes: tuple[Change, ...]
    notes: tuple[Note, ...]
    """What lockstep left alone, or assumed."""

    def marked(self, comment: str) -> Conversion:
        """Return the same with a comment as its first lines, after `#!` and the encoding."""
        lines = self.text.splitlines(keepends=True)
        first = 0
        while first < min(2, len(lines)) and _FIRST_LINE.match(lines[first]):
            first += 1
        if "\r\n" in self.text:
            comment = comment.replace("\n", "\r\n")
        return replace(self, text="".join([*lines[:first], comment, *lines[first:]]))

    @property
    def diff(self) -> str:
        """The difference between both texts, as a unified diff."""
        name = str(self.script.path)
        old, new = (text.splitlines(keepends=True) for text in (self.script.text, self.text))
        lines = unified_diff(old, new, name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def convert(script: Script, options: Options | None = None) -> Conversion:
    """Rewrite a script for several processes, or raise a ConvertError that gives the reason."""
    program = next(p for p in programs([script]) if p.scripts[0] is script)
    training = Training(program)
    if training.framework is not None:
        raise Already(
            f"{script.path} is written with {training.framework}, which runs on several GPUs by "
            f"itself. Check it with: lockstep doctor {script.path}"
        )
    if training.distributed:
        raise Already(
            f"{script.path} is distributed already, so lockstep leaves it alone. Check it with: "
            f"lockstep doctor {script.path}"
        )
    for refusal in refusals(training):
        line = refusal.script.place(refusal.node).start.line
        where = "" if refusal.script is script else f"{refusal.script.path.name}, "
        raise ConvertError(f"{where}line {line}: {refusal.reason}. {refusal.advice}")
    work = Work(Parts(training), options or Options())
    for module in all_rewrites():
        module.rewrite(work)
    if not work.split:
        raise ConvertError(
            "lockstep could not see where the script divides the training data into batches: the "
            "loop uses no DataLoader, and no slice or draw by the batch size was found. Use a "
            "DataLoader."
        )
    prelude.write(work)
    text = work.draft.text()
    parse(script.path, text)
    return Conversion(
        script,
        text,
        tuple(understood(work)),
        tuple(sorted(dict.fromkeys(work.changes), key=lambda c: c.line)),
        tuple(sorted(dict.fromkeys(work.notes), key=lambda n: n.line)),
    )
