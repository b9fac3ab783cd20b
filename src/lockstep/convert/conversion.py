"""Make the new files of a program from what a run of it has shown."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path

import libcst as cst

from lockstep.convert import companion
from lockstep.convert.analysis.guess import guessed, guessed_readouts
from lockstep.convert.analysis.parts import Parts
from lockstep.convert.analysis.summary import understood
from lockstep.convert.observe import Seen
from lockstep.convert.refuse import refusals
from lockstep.convert.rewrites import all_rewrites
from lockstep.convert.rewrites.forwards import suggested
from lockstep.convert.work import UNUSED, Change, Note, Options, Work
from lockstep.errors import Already, ConvertError
from lockstep.source.programs import programs
from lockstep.source.script import Script
from lockstep.source.training import Training

SHOWN = ("no_training", "full_graph")
"""Reasons that a run shows better than reading."""
_FIRST_LINE = re.compile(r"#!|#.*coding[:=]")


@dataclass(frozen=True)
class Conversion:
    """A program that was rewritten."""

    script: Script
    files: dict[Path, str]
    """The new text of every file that changes, and of the companion module."""
    understood: tuple[Note, ...]
    changes: tuple[Change, ...]
    notes: tuple[Note, ...]
    """What lockstep left alone, or assumed."""
    work: Work
    companion: Path
    """The module with the helpers, beside the script."""

    @property
    def text(self) -> str:
        """The new text of the script itself."""
        return self.files.get(self.script.path, self.script.text)

    @property
    def others(self) -> list[Path]:
        """The other files of the program that change."""
        return [p for p in self.files if p not in (self.script.path, self.companion)]

    def marked(self, comment: str) -> Conversion:
        """Return the same with a comment as the script's first lines, after `#!` and encoding."""
        lines = self.text.splitlines(keepends=True)
        first = 0
        while first < min(2, len(lines)) and _FIRST_LINE.match(lines[first]):
            first += 1
        if "\r\n" in self.text:
            comment = comment.replace("\n", "\r\n")
        text = "".join([*lines[:first], comment, *lines[first:]])
        return replace(self, files={**self.files, self.script.path: text})

    def diff(self, *, new: bool = False) -> str:
        """Return the difference of all files as one patch; with `new`, the companion as well."""
        texts = {script.path: script.text for script in self.work.scripts}
        parts = []
        for path, text in self.files.items():
            if path == self.companion and not new:
                continue
            old = texts.get(path, "")
            name = _relative(path, self.script.path.parent)
            before, after = (t.splitlines(keepends=True) for t in (old, text))
            start = f"a/{name}" if old else "/dev/null"
            lines = unified_diff(before, after, start, f"b/{name}")
            ended = (
                x if x.endswith("\n") else f"{x}\n\\ No newline at end of file\n" for x in lines
            )
            parts.append("".join(ended))
        return "".join(parts)


def _relative(path: Path, home: Path) -> str:
    path, home = path.resolve(), home.resolve()
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else path.name


def _training(script: Script) -> Training:
    return Training(next(p for p in programs([script]) if p.scripts[0] is script))


def refusal(script: Script, *, by_reading: bool = False) -> Training:
    """Return the training of a script, or raise a ConvertError that gives the reason against it.

    What a run can show is a reason only with `by_reading`.
    """
    training = _training(script)
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
    for found in refusals(training):
        if found.name in SHOWN and not by_reading:
            continue
        line = found.script.place(found.node).start.line
        where = "" if found.script is script else f"{found.script.path.name}, "
        raise ConvertError(f"{where}line {line}: {found.reason}. {found.advice}")
    return training


def convert(training: Training, seen: Seen, options: Options) -> Conversion:
    """Rewrite a program as a run has shown it, or raise a ConvertError that gives the reason."""
    work = Work(Parts(training), options, seen)
    for module in all_rewrites():
        module.rewrite(work)
    if not work.split:
        refusal(work.entry, by_reading=True)
        raise ConvertError(
            "lockstep could not see where the script divides the training data into batches: the "
            "loop uses no DataLoader, and no slice or draw by the batch size was found. Use a "
            "DataLoader."
        )
    files: dict[Path, str] = {}
    for script in work.scripts:
        work.script = script
        if work.used[script] or script is work.entry:
            _import(work)
        text = work.draft.text()
        if text != script.text:
            _check(script, text)
            files[script.path] = text
    if work.weighs:
        work.flags.add("together" if seen.ahead and not options.source else "uneven")
    if "uneven" not in work.flags:
        for loader in seen.loaders[:1]:
            call = work.at(loader.span)
            if call is not None:
                work.note(call, "several processes leave out what cannot be divided at its end")
    beside = work.entry.path.parent / f"{work.module}.py"
    files[beside] = _companion(work)
    return Conversion(
        work.entry,
        files,
        tuple(understood(work)),
        tuple(sorted(dict.fromkeys(work.changes), key=lambda c: (c.file, c.line))),
        tuple(sorted(dict.fromkeys(work.notes), key=lambda n: (n.file, n.line))),
        work,
        beside,
    )


def read_only(script: Script, options: Options) -> Conversion:
    """Rewrite a program that was only read."""
    training = refusal(script, by_reading=True)
    parts = Parts(training)
    seen = guessed(parts)
    work = Work(parts, options, seen)
    return convert(training, seen, replace(options, readouts=guessed_readouts(work), counts=True))


def _companion(work: Work) -> str:
    needed = [name for names in work.used.values() for name in names]
    words = {word for script in work.scripts for path in script.imports for word in path.split(".")}
    flags = work.flags | {name for name in ("logging", "tqdm", "wandb") if name in words}
    if "divided" not in needed:
        flags.discard("shared")
    if "numpy" in words:
        flags.add("np")
    # Buffers change in all processes alike, so there is nothing to send.
    options = ", broadcast_buffers=False" if work.seen.buffers else ""
    if (work.options.averaging or suggested(work)) == UNUSED:
        options += ", find_unused_parameters=True"
    return companion.written(needed, flags, options)


def _import(work: Work) -> None:
    """Import the helpers before everything else: the import joins the other processes."""
    script, module = work.script, work.module
    pairs = work.used[script].items()
    names = [name if name == alias else f"{name} as {alias}" for name, alias in sorted(pairs)]
    relative = script is work.entry and any(path.startswith("./") for path in script.imports)
    text = f"import {module}"
    if names:
        text = f"from {'.' * relative}{module} import {', '.join(names)}"
        if len(text) > 100:
            lines = "".join(f"    {name},\n" for name in names)
            text = f"from {'.' * relative}{module} import (\n{lines})"
    first = _first_statement(script)
    if first is None:
        raise ConvertError(f"{script.path} holds no statement.")
    work.draft.before(first, text)


def _first_statement(script: Script) -> cst.CSTNode | None:
    """Return the first statement that is no docstring and no import from __future__."""
    for statement in script.tree.body:
        if isinstance(statement, cst.SimpleStatementLine):
            part = statement.body[0]
            text = isinstance(part, cst.Expr) and isinstance(
                part.value, cst.SimpleString | cst.ConcatenatedString
            )
            future = isinstance(part, cst.ImportFrom) and (
                isinstance(part.module, cst.Name) and part.module.value == "__future__"
            )
            if text or future:
                continue
        return statement
    return None


def _check(script: Script, text: str) -> None:
    """Refuse text that Python cannot read: the fault is then in the rewriting."""
    try:
        compile(text, str(script.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError) as error:
        raise ConvertError(
            f"lockstep wrote text for {script.path.name} that Python cannot read (line "
            f"{getattr(error, 'lineno', '?')}). This is a fault of lockstep, not of the script."
        ) from None
