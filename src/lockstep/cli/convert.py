"""lockstep convert: a script for one GPU becomes a script for many."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.console import Console
from lockstep.errors import Already, ConvertError, UsageError

if TYPE_CHECKING:
    from lockstep.convert import Conversion
    from lockstep.source.script import Script


def parser() -> argparse.ArgumentParser:
    """The flags. Not Typer's: to load it takes longer than to convert a script."""
    found = argparse.ArgumentParser(
        "lockstep convert",
        description="Turn a PyTorch training script for one GPU into a script for many, in plain "
        "PyTorch. Prints the changes; writes nothing without --write or -o.",
        epilog="Exit code: 0 converted, or distributed already; 1 refused, or not proven; 2 it "
        "could not be read.",
        usage="lockstep convert [options] script [-- arguments of the script, with --verify]",
        allow_abbrev=False,
    )
    add = found.add_argument
    add("script", type=Path, help="a script or a notebook; - reads from standard input")
    add("--write", action="store_true", help="write the new script in the place of the old one")
    add("-o", "--out", type=Path, metavar="FILE", help="write the new script to this file")
    add(
        "--scale-batch",
        action="store_true",
        help="keep the batch of each process and fit the rate; default: the global batch stays",
    )
    add(
        "--local-batch-norm",
        action="store_true",
        help="let batch norm see the samples of its own process only; default: all of the batch",
    )
    add("--json", action="store_true", help="one JSON document on standard output")
    return found


def run(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    given = parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of files may be anything, and a terminal may know ASCII only.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _run(given: argparse.Namespace) -> int:
    from lockstep.convert import Options, convert

    if given.write and given.out:
        raise UsageError("--write and -o both say where to write: give one of them.")
    script = _read(given)
    console = Console(as_json=given.json)
    options = Options(scale_batch=given.scale_batch, sync_batch_norm=not given.local_batch_norm)
    try:
        found = convert(script, options)
    except ConvertError as error:
        if given.json:
            state = "already" if isinstance(error, Already) else "refused"
            console.emit({"path": str(script.path), "state": state, "reason": str(error)})
        elif isinstance(error, Already):
            console.lines([str(error)])
        else:
            console.error(f"{script.path} is not converted: {error}")
        return error.exit_code
    target = script.path if given.write else given.out
    if given.json:
        console.emit(_document(found))
    else:
        console.lines(_text(found, shown=target is None))
    if target is not None:
        _write(found, target)
        if not given.json:
            console.lines(
                [f"{target} is written. Start it with: torchrun --nproc-per-node N {target}"]
            )
    return 0


def _read(given: argparse.Namespace) -> Script:
    from lockstep.source.reading import MOST_BYTES, decoded, parse, read_script

    if str(given.script) == "-":
        if given.write:
            raise UsageError("--write has no file to write to: give -o.")
        name = Path("standard input")
        return parse(name, decoded(name, sys.stdin.buffer.read(MOST_BYTES + 1)))
    if given.script.suffix == ".ipynb" and given.write:
        raise UsageError("a notebook is one process: write a script with -o FILE.py.")
    return read_script(given.script)


def _text(found: Conversion, *, shown: bool) -> list[str]:
    path = found.script.path
    lines = [f"{path}: understood"]
    lines += [f"  line {note.line:4}  {note.text}" for note in found.understood]
    if shown:
        lines += ["", found.diff.rstrip("\n")]
    lines += ["", "why"]
    lines += [f"  line {c.line:4}  {c.name}: {c.reason}" for c in found.changes]
    if found.notes:
        lines += ["", "left alone, or taken for granted"]
        lines += [f"  line {note.line:4}  {note.text}" for note in found.notes]
    return lines


def _document(found: Conversion) -> dict[str, Any]:
    return {
        "path": str(found.script.path),
        "state": "converted",
        "understood": [note.__dict__ for note in found.understood],
        "changes": [change.__dict__ for change in found.changes],
        "notes": [note.__dict__ for note in found.notes],
        "diff": found.diff,
        "text": found.text,
    }


def _write(found: Conversion, target: Path) -> None:
    encoding = found.script.encoding
    try:
        target.write_bytes(found.text.encode(encoding))
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}. Give another file with -o."
        ) from None
