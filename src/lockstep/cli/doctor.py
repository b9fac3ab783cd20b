"""lockstep doctor: the bugs that data parallelism brings, in a script."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.console import Console
from lockstep.errors import SourceError, UsageError

if TYPE_CHECKING:
    from lockstep.doctor import Checked, Rule

FORMATS = ("text", "json", "sarif", "github")


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Scripts, notebooks or folders; - reads a script from standard input."),
    ] = None,
    *,
    select: Annotated[str, typer.Option(help="Only these rules, by name or code: a,b,c.")] = "",
    ignore: Annotated[str, typer.Option(help="Not these rules, by name or code.")] = "",
    output: Annotated[str, typer.Option("--format", help="text, json, sarif or github.")] = "text",
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended safely.")] = False,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Mend also what a person should look at.")
    ] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List all rules.")] = False,
) -> None:
    """Find the bugs that data parallelism brings, in anyone's script. Runs nothing."""
    from lockstep.doctor import RULES
    from lockstep.doctor import output as show

    console = Console(as_json=json or output != "text")
    if rules:
        console.table("", ["rule", "code", ""], [[r.name, r.code, r.summary] for r in RULES])
        return
    if output not in FORMATS:
        raise UsageError(f"--format {output}: known are {', '.join(FORMATS)}.")
    output = "json" if json else output
    if not paths:
        raise UsageError("name a script, a notebook or a folder, or - for standard input.")
    checked = _check(paths, _chosen(RULES, select, ignore))
    if fix or unsafe_fixes:
        mended = _mend(checked, unsafe_fixes)
        console.say(f"{mended} finding(s) mended.")
        checked = _check(paths, _chosen(RULES, select, ignore))
    for error in checked.errors:
        console.error(error)
    if output == "json":
        console.emit(show.document(checked))
    elif output == "sarif":
        from importlib.metadata import version

        console.emit(show.sarif(checked, version("lockstep")))
    elif output == "github":
        console.lines(show.github(finding) for finding in checked.findings)
    else:
        console.lines(show.text(finding) for finding in checked.findings)
        console.say(show.summary(checked))
    raise typer.Exit(2 if checked.errors else 1 if checked.findings else 0)


def _chosen(rules: "tuple[Rule, ...]", select: str, ignore: str) -> "list[Rule]":
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
    wanted = picked["--select"] or {rule.code for rule in rules}
    return [rule for rule in rules if rule.code in wanted - picked["--ignore"]]


def _check(paths: list[Path], rules: "list[Rule]") -> "Checked":
    from lockstep.doctor.check import Checked, check, check_scripts
    from lockstep.source.script import decoded, parse

    if Path("-") not in paths:
        return check(paths, rules)
    if len(paths) > 1:
        raise UsageError("- is standard input: name nothing beside it.")
    name = Path("standard input")
    return check_scripts([parse(name, decoded(name, sys.stdin.buffer.read()))], rules, Checked())


def _mend(checked: "Checked", unsafe: bool) -> int:
    """Write the fixes into the files; how many there were."""
    from lockstep.doctor.findings import applied

    mended = 0
    for path in {finding.path for finding in checked.findings}:
        here = [f for f in checked.findings if f.path == path and f.fix is not None]
        fixes = [f.fix for f in here if f.fix is not None and (f.fix.safe or unsafe)]
        if not fixes:
            continue
        if path.suffix != ".py":
            raise SourceError(f"{path}: only scripts can be mended, not notebooks or input.")
        text = applied(checked.scripts[path].text, [e for fix in fixes for e in fix.edits])
        path.write_text(text, encoding=checked.scripts[path].tree.encoding, newline="")
        mended += len(fixes)
    return mended
