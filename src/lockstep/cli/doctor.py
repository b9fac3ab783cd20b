"""lockstep doctor: find data-parallel bugs in a script."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.script_command import read_standard_input, run_command
from lockstep.console import Console, duration
from lockstep.errors import SourceError, UsageError

if TYPE_CHECKING:
    from lockstep.doctor import Checked, Fix, Rule
    from lockstep.source.edits import Edit
    from lockstep.source.script import Script

MANY = 10
"""The number of findings from which on they are also counted by rule."""
FORMATS = ("text", "json", "sarif", "github")


def parser() -> argparse.ArgumentParser:
    """Build the parser. Typer is not used: importing it takes longer than checking a script."""
    found = argparse.ArgumentParser(
        "lockstep doctor",
        description="Find data-parallel bugs in a training script. Without --run, the script does "
        "not run.",
        usage="lockstep doctor [options] paths ... [-- arguments of the script, with --run]",
        epilog="Exit codes: 0 no findings, 1 findings, 2 a file could not be read.",
        allow_abbrev=False,
    )
    add = found.add_argument
    switch = partial(add, action="store_true")
    where = "scripts, notebooks or folders; - reads a script from standard input"
    add("paths", nargs="*", type=Path, help=where)
    rules = partial(add, default="", metavar="RULES")
    rules("--select", help="check only these rules, by name or code: a,b,c")
    rules("--ignore", help="skip these rules, by name or code")
    add("--format", default="text", metavar="FORMAT", help=f"one of {', '.join(FORMATS)}")
    switch("--json", help="short for --format json")
    switch("--fix", help="apply the fixes that are safe")
    switch("--unsafe-fixes", help="also apply fixes that you should review")
    switch("--rules", help="list all rules")
    old = partial(add, type=Path, metavar="FILE")
    old("--baseline", help="report only findings that this file does not hold")
    old("--write-baseline", help="write all findings into this file, and exit with 0")
    run = found.add_argument_group("run the script too, unchanged, on this machine").add_argument
    switch = partial(run, action="store_true")
    number = partial(run, type=int, metavar="N")
    switch("--run", help="run the script on several ranks and watch them")
    number("--replicas", default=2, help="number of ranks (default: 2)")
    number("--steps", default=30, help="stop after N steps (default: 30); 0: no limit")
    number("--batches", help="end each pass over a loader after N batches")
    late = "stop after S seconds without progress (default: 60)"
    run("--timeout", type=float, default=60.0, metavar="S", help=late)
    how = "torchrun or python; auto decides by the script"
    run("--launch", default="auto", metavar="HOW", help=how)
    run("--resume", metavar="ARGS", help="run the script a second time with these arguments added")
    switch("--stand-in-data", help="replace missing data and libraries with synthetic ones")
    switch("--no-oracle", help="do not repeat the first step on one rank to check the gradient")
    written = "write report.html, report.json and the logs there"
    run("--out", type=Path, metavar="FOLDER", help=written)
    return found


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), arguments, _run)


def _run(given: argparse.Namespace) -> int:
    from lockstep.doctor import RULES

    output = "json" if given.json else given.format
    if output not in FORMATS:
        raise UsageError(f"--format {output}: known are {', '.join(FORMATS)}.")
    console = Console(as_json=output != "text")
    if given.rules:
        if output == "json":
            console.emit([{"rule": r.name, "code": r.code, "summary": r.summary} for r in RULES])
        else:
            width = max(len(rule.name) for rule in RULES)
            console.lines(f"{r.code}  {r.name:{width}}  {r.summary}" for r in RULES)
        return 0
    if not given.paths:
        raise UsageError("name a script, a notebook or a folder, or - for standard input.")
    if given.own is not None and not given.run:
        raise UsageError("arguments after -- need --run: without it the script does not run.")
    if given.run and (given.baseline or given.write_baseline):
        raise UsageError("a baseline is of what is read: leave out --run.")
    if given.run:
        from lockstep.cli.doctor_run import refuse

        refuse(given)
    rules = _chosen(RULES, given.select, given.ignore)
    changes = given.fix or given.unsafe_fixes
    checked = _check(given.paths, rules, several=not changes and not given.run)
    if changes:
        fixed, notes = _apply(checked, given.unsafe_fixes)
        for note in notes:
            console.error(note)
        done = f"{fixed} finding(s) fixed."
        if output == "text":
            console.lines([done])
        else:
            console.say(done)
        checked = _check(given.paths, rules)
    for error in checked.errors:
        console.error(error)
    if given.write_baseline is not None:
        from lockstep.doctor.baseline import write

        number = write(given.write_baseline, checked)
        console.say(f"{given.write_baseline} holds {number} finding(s).")
        return 2 if checked.errors else 0
    if given.baseline is not None:
        from lockstep.doctor.baseline import only_new

        number = only_new(given.baseline, checked)
        console.say(f"{number} finding(s) of {given.baseline} are not shown.")
    if given.run and not checked.errors:
        from lockstep.cli.doctor_run import examined

        return examined(given, checked, rules, console, output)
    show(checked, console, output)
    return 2 if checked.errors else 1 if checked.findings else 0


def show(
    checked: Checked, console: Console, output: str, run: dict[str, Any] | None = None
) -> None:
    """Print the findings in the format `output`, with the facts of a run if there was one."""
    from lockstep.doctor import output as written

    if output == "json":
        console.emit(written.document(checked) | ({} if run is None else {"run": run}))
    elif output == "sarif":
        from importlib.metadata import version

        console.emit(written.sarif(checked, version("lockstep")))
    elif output == "github":
        console.lines(written.github(finding) for finding in checked.findings)
    else:
        console.lines(written.text(finding) for finding in checked.findings)
        if len(checked.findings) >= MANY:
            from lockstep.doctor.baseline import by_rule

            console.lines(by_rule(checked.findings))
        last = written.summary(checked)
        if run is not None:
            console.lines(written.running(run))
            last += f" The run took {duration(run['seconds'])}."
        console.lines([last])


def _chosen(rules: tuple[Rule, ...], select: str, ignore: str) -> list[Rule]:
    known = {name: rule for rule in rules for name in (rule.name, rule.code)}
    picked = {}
    for flag, text in (("--select", select), ("--ignore", ignore)):
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise UsageError(
                    f"{flag} {name}: no such rule. lockstep doctor --rules lists them."
                )
        picked[flag] = {known[name].code for name in names}
    wanted = picked["--select"] or {rule.code for rule in rules if not rule.on_request}
    return [rule for rule in rules if rule.code in wanted - picked["--ignore"]]


def _check(paths: list[Path], rules: list[Rule], *, several: bool = False) -> Checked:
    from lockstep.doctor.check import Checked, check, check_scripts

    if Path("-") not in paths:
        from lockstep.processes.pool import cores

        return check(paths, rules, processes=cores() if several else 1)
    if len(paths) > 1:
        raise UsageError("- means standard input: give no other path with it.")
    return check_scripts([read_standard_input()], rules, Checked())


def _apply(checked: Checked, unsafe: bool) -> tuple[int, list[str]]:
    """Write the fixes into the files; return their number, and a note for each file not fixed."""
    fixed, notes = 0, []
    for path in dict.fromkeys(finding.path for finding in checked.findings):
        here = [f.fix for f in checked.findings if f.path == path and f.fix is not None]
        fixes = _apart([fix for fix in here if fix.safe or unsafe])
        if not fixes:
            continue
        if path.suffix != ".py" or not path.is_file():
            notes.append(f"{path} is not fixed: --fix changes .py files only.")
            continue
        try:
            _write(checked.scripts[path], fixes)
        except OSError as error:
            notes.append(f"{path} cannot be written: {error.strerror}. It is unchanged.")
        except SourceError:
            notes.append(
                f"{path} is not fixed: the result would not be valid Python. Fix it by hand."
            )
        else:
            fixed += len(fixes)
    return fixed, notes


def _apart(fixes: Sequence[Fix]) -> list[Fix]:
    """Choose fixes whose edits do not overlap; the next --fix applies the others."""
    chosen: list[Fix] = []
    taken: list[Edit] = []
    for fix in dict.fromkeys(fixes):
        new = [edit for edit in fix.edits if edit not in taken]
        if any(a.start < b.end and b.start < a.end for a in new for b in taken):
            continue
        chosen.append(fix)
        taken += new
    return chosen


def _write(script: Script, fixes: Sequence[Fix]) -> None:
    from lockstep.source.edits import applied
    from lockstep.source.reading import parse

    text = applied(script.text, [edit for fix in fixes for edit in fix.edits])
    parse(script.path, text)
    script.path.write_bytes(text.encode(script.encoding))
