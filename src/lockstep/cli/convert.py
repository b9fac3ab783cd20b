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
    from lockstep.convert import Conversion
    from lockstep.convert.verify import Verdict
    from lockstep.source.script import Script

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
    switch("--write", help="replace the old script with the new one")
    add("-o", "--out", type=Path, metavar="FILE", help="write the new script to this file")
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
    from lockstep.convert import Options, convert

    if given.write and given.out:
        raise UsageError("--write and -o both name a place to write to: give one of them.")
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
    try:
        found = convert(script, options)
    except ConvertError as error:
        if given.json:
            state = "already" if isinstance(error, Already) else "refused"
            console.emit({"path": str(script.path), "state": state, "reason": str(error)})
        elif isinstance(error, Already):
            console.lines([str(error)])
        else:
            console.error(f"{script.path} was not converted: {error}")
        return error.exit_code
    if not given.verify:
        found = found.marked(UNPROVEN)
    target = script.path if given.write else given.out
    if not given.json:
        if not given.verify:
            console.lines([f"Not proven: lockstep only read {script.path}."])
        console.lines(_text(found, shown=target is None))
    plain = Options()
    verdict = None
    if given.verify:
        # These options change the result on purpose: prove what they are added to.
        kept = found if options == plain else convert(script, plain)
        verdict = _verdict(kept, given, replicas, console)
    if given.json:
        proof = {} if verdict is None else {"verdict": verdict.described()}
        console.emit(_document(found) | proof)
    elif verdict is not None:
        console.lines(_proof(verdict))
        if verdict.proved and options != plain:
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
        _write(found, target)
        if not given.json:
            console.lines([f"Wrote {target}. Start it with: torchrun --nproc-per-node N {target}"])
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
    """Run both scripts. The result gets a file in a temporary folder, whatever becomes of it."""
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
            arguments=tuple(given.own or ()),
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
    path = found.script.path
    lines = [f"{path}: understood"]
    lines += [f"  {_place(note.line)}  {note.text}" for note in found.understood]
    if shown:
        lines += ["", found.diff.rstrip("\n")]
    lines += ["", "why"]
    lines += [f"  {_place(c.line)}  {c.name}: {c.reason}" for c in found.changes]
    if found.notes:
        lines += ["", "left alone, or assumed"]
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
    try:
        target.write_bytes(found.text.encode(found.script.encoding))
    except OSError as error:
        raise UsageError(
            f"{target} cannot be written: {error.strerror}. Give another file with -o."
        ) from None


def _place(line: int) -> str:
    return f"line {line:4}" if line else "elsewhere"
