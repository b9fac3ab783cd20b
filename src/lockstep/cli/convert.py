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
    from lockstep.convert.verify import Verdict
    from lockstep.source.script import Script

MOST_REPLICAS = 16
"""More processes than one machine should be asked for."""


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
    proof = found.add_argument_group(
        "proving it, by running both scripts on this machine"
    ).add_argument
    proof("--verify", action="store_true", help="run the original and the result, and compare")
    proof("--steps", type=int, default=6, metavar="N", help="steps to compare (6)")
    proof(
        "--replicas",
        default="1,2,4",
        metavar="N,N,...",
        help="numbers of processes to run the result on (1,2,4)",
    )
    proof("--timeout", type=float, default=60.0, metavar="S", help="seconds without progress (60)")
    add("--json", action="store_true", help="one JSON document on standard output")
    return found


def run(arguments: Sequence[str]) -> int:
    """The command; its exit code."""
    arguments, own = list(arguments), []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, own = arguments[:at], arguments[at + 1 :]
    given = parser().parse_args(arguments)
    given.own = own
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
    if given.own and not given.verify:
        raise UsageError("arguments of the script after -- need --verify: nothing else is run.")
    replicas = _replicas(given)
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
    if not given.json:
        console.lines(_text(found, shown=target is None))
    verdict = _verdict(found, given, replicas, console) if given.verify else None
    if given.json:
        proof = {} if verdict is None else {"verdict": verdict.described()}
        console.emit(_document(found) | proof)
    elif verdict is not None:
        console.lines(_proof(verdict))
    if verdict is not None and not verdict.proved:
        if target is not None:
            console.error(f"{target} is not written, as the result is not proven.")
        return 1
    if target is not None:
        _write(found, target)
        if not given.json:
            console.lines(
                [f"{target} is written. Start it with: torchrun --nproc-per-node N {target}"]
            )
    return 0


def _replicas(given: argparse.Namespace) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in given.replicas.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1 or max(found) > MOST_REPLICAS:
        raise UsageError(
            f"--replicas {given.replicas}: give numbers from 1 to {MOST_REPLICAS}, such as 1,2,4."
        )
    if given.steps < 1 or given.timeout <= 0:
        raise UsageError("--steps and --timeout must be larger than 0.")
    return found


def _verdict(
    found: Conversion, given: argparse.Namespace, replicas: tuple[int, ...], console: Console
) -> Verdict:
    """Run both. The result lies in a file of its own, whatever becomes of it."""
    from tempfile import TemporaryDirectory

    from lockstep.console import LiveProgress
    from lockstep.convert.verify import verify

    path = found.script.path
    with TemporaryDirectory(prefix="lockstep-convert-") as folder:
        original, result = Path(folder, "before.py"), Path(folder, "after.py")
        if path.suffix == ".py" and path.is_file():
            original = path
        else:
            original.write_text(found.script.text)
        result.write_text(found.text, encoding=found.script.encoding, newline="")
        return verify(
            original,
            result,
            arguments=tuple(given.own),
            replicas=replicas,
            steps=given.steps,
            timeout=given.timeout,
            progress=LiveProgress(console, "runs"),
        )


def _proof(verdict: Verdict) -> list[str]:
    lines = ["", "verify"]
    if verdict.failure:
        lines += [f"  {verdict.failure}", *(f"    {line}" for line in verdict.log.splitlines())]
    for one in verdict.comparisons:
        lines.append(f"  {one.text}")
        lines += [f"    {line}" for line in one.log.splitlines()]
        lines += [f"    {note}" for note in one.notes]
    if verdict.neutralised:
        lines.append(f"  made the same in all runs: {'; '.join(verdict.neutralised)}")
    if verdict.fake_cuda:
        lines.append(f"  the CPU stood in for {', '.join(verdict.fake_cuda)}")
    if verdict.fake_data:
        lines.append(f"  missing here, and replaced by stand-ins: {'; '.join(verdict.fake_data)}")
    for finding in verdict.findings:
        lines.append(f"  doctor, line {finding.line}: {finding.rule.name}: {finding.message}")
    lines.append("  proven" if verdict.proved else "  not proven")
    return lines


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
    lines += [f"  {_place(note.line)}  {note.text}" for note in found.understood]
    if shown:
        lines += ["", found.diff.rstrip("\n")]
    lines += ["", "why"]
    lines += [f"  {_place(c.line)}  {c.name}: {c.reason}" for c in found.changes]
    if found.notes:
        lines += ["", "left alone, or taken for granted"]
        lines += [f"  {_place(note.line)}  {note.text}" for note in found.notes]
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


def _place(line: int) -> str:
    return f"line {line:4}" if line else "elsewhere"
