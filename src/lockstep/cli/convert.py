"""lockstep convert: turn a script for one GPU into a script for many."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.script_command import read_standard_input, run_command
from lockstep.console import Console
from lockstep.errors import Already, ConvertError, UsageError

if TYPE_CHECKING:
    from lockstep.convert import Change, Conversion, Note, Options
    from lockstep.convert.verify import Verdict
    from lockstep.source.script import Script
    from lockstep.source.training import Training

UNPROVEN = (
    "# lockstep convert --no-verify wrote this file: it was not run, and nothing proves that it\n"
    "# trains as the original does.\n"
)
"""The first lines of a result that was only read."""
MOST_REPLICAS = 16
"""The most processes that one machine should run."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the flags. Loading Typer would take longer than converting a script."""
    found = argparse.ArgumentParser(
        "lockstep convert",
        description="Turn a PyTorch training script for one GPU into a script for many, in plain "
        "PyTorch, and prove that it trains as before: run both on this machine and compare them. "
        "Print the changes; write a file only with --write or -o.",
        epilog="Exit code: 0 if the script was converted or is distributed already, 1 if it was "
        "refused or not proven, 2 if it could not be read.",
        usage="lockstep convert [options] script [-- arguments of the script]",
        allow_abbrev=False,
    )
    add = found.add_argument
    switch = partial(add, action="store_true")
    add("script", type=Path, help="a script or a notebook; - for standard input")
    switch("--write", help="replace the files of the program with the new ones")
    add("-o", "--out", type=Path, metavar="FILE", help="write the new script to this file")
    add("--patch", type=Path, metavar="FILE", help="write all changes to this file, as a patch")
    switch(
        "--scale-batch",
        help="keep the batch of each process and adapt the learning rate; by default the global "
        "batch stays the same",
    )
    switch(
        "--local-batch-norm",
        help="let batch norm see only the samples of its process; by default it sees the whole "
        "batch",
    )
    proof = found.add_argument_group("the proof").add_argument
    proof(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run the original and the result, and compare them; a result that is not proven is "
        "not written. With --no-verify, lockstep only reads the script, and marks the new file",
    )
    proof("--steps", type=int, default=6, metavar="N", help="steps to compare (default: 6)")
    sizes = "numbers of processes to run the result on (default: 1,2,4)"
    proof("--replicas", default="1,2,4", metavar="N,N,...", help=sizes)
    late = "give up after S seconds without progress (default: 60)"
    proof("--timeout", type=float, default=60.0, metavar="S", help=late)
    switch("--json", help="print one JSON document")
    return found


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), arguments, _run)


def _run(given: argparse.Namespace) -> int:
    from lockstep.convert import Options, refusal

    if sum(bool(x) for x in (given.write, given.out, given.patch)) > 1:
        raise UsageError("--write, -o and --patch each name a place to write to: give one of them.")
    if given.own and not given.verify:
        raise UsageError("--no-verify runs nothing: leave out the arguments after --.")
    if given.verify and find_spec("torch") is None:
        raise UsageError(
            "torch is not installed here, so lockstep cannot run the script to prove the result. "
            "Run: pip install 'lockstep[train]'. Or give --no-verify: then lockstep only reads the "
            "script, and marks the new file as not proven."
        )
    replicas = _replicas(given)
    script = _read(given)
    console = Console(as_json=given.json)
    options = Options(scale_batch=given.scale_batch, sync_batch_norm=not given.local_batch_norm)
    verdict = None
    try:
        if given.verify:
            found, verdict = _proven(script, refusal(script), options, given, replicas, console)
        else:
            from lockstep.convert import read_only

            found = read_only(script, options).marked(UNPROVEN)
    except ConvertError as error:
        if given.json:
            state = "already" if isinstance(error, Already) else "refused"
            console.emit({"path": str(script.path), "state": state, "reason": str(error)})
        elif isinstance(error, Already):
            console.lines([str(error)])
        else:
            console.error(f"{script.path} was not converted: {error}")
        return error.exit_code
    target = script.path if given.write else given.out or given.patch
    if given.json:
        proof = {} if verdict is None else {"verdict": verdict.described()}
        console.emit(_document(found) | proof)
    else:
        if not given.verify:
            console.lines([f"Not proven: lockstep only read {script.path}."])
        console.lines(_text(found, shown=target is None))
        if verdict is not None:
            console.lines(_proof(verdict))
            if verdict.proved and options != Options():
                flags = "--scale-batch" if options.scale_batch else "--local-batch-norm"
                if options.scale_batch and not options.sync_batch_norm:
                    flags = "--scale-batch and --local-batch-norm"
                console.lines([f"  without {flags}, which changes the training on purpose"])
    if verdict is not None and not verdict.proved:
        if target is not None:
            console.error(
                f"{target} is not written, because the result is not proven. To write it anyway, "
                "marked as not proven, give --no-verify."
            )
        return 1
    if target is not None:
        lines = _write(found, given)
        if not given.json:
            console.lines(lines)
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


def _proven(
    script: Script,
    training: Training,
    options: Options,
    given: argparse.Namespace,
    replicas: tuple[int, ...],
    console: Console,
) -> tuple[Conversion, Verdict]:
    """Run the original, convert it as the run suggests, and prove the result."""
    from lockstep.console import LiveProgress
    from lockstep.convert.search import prove

    found = prove(
        script,
        training,
        options=options,
        arguments=tuple(given.own or ()),
        replicas=replicas,
        steps=given.steps,
        timeout=given.timeout,
        progress=LiveProgress(console, "runs"),
    )
    return found.conversion, found.verdict


def _proof(verdict: Verdict) -> list[str]:
    lines = ["", "verify"]
    if verdict.failure:
        lines += [f"  {verdict.failure}", *(f"    {line}" for line in verdict.log.splitlines())]
    for one in verdict.comparisons:
        lines.append(f"  {one.text}")
        lines += [f"    {line}" for line in one.log.splitlines()]
        lines += [f"    {note}" for note in one.notes]
    if verdict.neutralised:
        lines.append(f"  the same in all runs: {'; '.join(verdict.neutralised)}")
    if verdict.fake_cuda:
        lines.append(f"  the CPU replaced {', '.join(verdict.fake_cuda)}")
    if verdict.fake_data:
        lines.append(f"  missing here, so replaced: {'; '.join(verdict.fake_data)}")
    for finding in verdict.findings:
        lines.append(f"  doctor, line {finding.line}: {finding.rule.name}: {finding.message}")
    lines.append("  proven" if verdict.proved else "  not proven")
    return lines


def _read(given: argparse.Namespace) -> Script:
    from lockstep.source.reading import read_script

    if str(given.script) == "-":
        if given.write:
            raise UsageError(
                "--write has no file to replace when the script comes from standard input: give -o."
            )
        return read_standard_input()
    if given.script.suffix == ".ipynb" and given.write:
        raise UsageError("a notebook runs in one process: write a script with -o FILE.py.")
    return read_script(given.script)


def _text(found: Conversion, *, shown: bool) -> list[str]:
    lines = [f"{found.script.path}: understood"]
    lines += [f"  {_place(note)}  {note.text}" for note in found.understood]
    if shown:
        lines += ["", found.diff().rstrip("\n")]
        lines += ["", f"{found.companion.name}, which is new, holds the functions it imports"]
    lines += ["", "why"]
    lines += [f"  {_place(change)}  {change.name}: {change.reason}" for change in found.changes]
    if found.notes:
        lines += ["", "left alone, or assumed"]
        lines += [f"  {_place(note)}  {note.text}" for note in found.notes]
    return lines


def _document(found: Conversion) -> dict[str, Any]:
    return {
        "path": str(found.script.path),
        "state": "converted",
        "understood": [note.__dict__ for note in found.understood],
        "changes": [change.__dict__ for change in found.changes],
        "notes": [note.__dict__ for note in found.notes],
        "diff": found.diff(),
        "text": found.text,
        "files": {str(path): text for path, text in found.files.items()},
    }


def _write(found: Conversion, given: argparse.Namespace) -> list[str]:
    """Write the new files, or the patch, and return what to print."""
    if given.patch is not None:
        _put(given.patch, found.diff(new=True).encode())
        home = found.script.path.parent
        return [f"Wrote {given.patch}. Apply it with: git -C {home} apply {given.patch.resolve()}"]
    encodings = {script.path: script.encoding for script in found.work.scripts}
    written = []
    if given.out is not None and found.others:
        names = ", ".join(path.name for path in found.others)
        raise UsageError(
            f"-o writes one script, but {names} must change, too. Give --write, or --patch FILE."
        )
    for path, text in found.files.items():
        target = path
        if given.out is not None:
            own = path == found.script.path
            target = given.out if own else given.out.parent / found.companion.name
        _put(target, text.encode(encodings.get(path, "utf-8")))
        written.append(str(target))
    start = given.out or found.script.path
    files = ", ".join(written)
    return [f"Wrote {files}. Start it with: torchrun --nproc-per-node N {start}"]


def _put(target: Path, content: bytes) -> None:
    try:
        target.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}. Give another file with -o."
        ) from None


def _place(one: Change | Note) -> str:
    file = f"{one.file}, " if one.file else ""
    return f"{file}line {one.line:4}" if one.line else f"{file}elsewhere"
