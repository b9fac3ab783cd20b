"""Check files and folders, and return the findings."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.doctor.findings import Finding, Rule, located
from lockstep.doctor.ignore import ignored
from lockstep.doctor.registry import RULES
from lockstep.errors import SourceError
from lockstep.source.programs import programs
from lockstep.source.project import Project
from lockstep.source.reading import MOST_BYTES, read_script
from lockstep.source.script import Script
from lockstep.source.training import Training

SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", ".tox", "build", "dist"} | {
    "site-packages",
    ".ipynb_checkpoints",
}


@dataclass
class Checked:
    """The findings in some files, and which files were read."""

    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    distributed: int = 0
    """Number of programs that train on several replicas."""
    frameworks: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    """Files that could not be read."""
    scripts: dict[Path, Script] = field(default_factory=dict)


def check(paths: Iterable[Path], rules: Sequence[Rule] | None = None) -> Checked:
    """Check files and folders; each program is checked together with the modules it imports."""
    result = Checked()
    scripts = []
    for path in dict.fromkeys(paths):
        try:
            for place in files([path]):
                if place != path and not may_train(place):
                    result.files += 1
                    continue
                try:
                    scripts.append(read_script(place))
                except SourceError as error:
                    result.errors.append(str(error))
        except SourceError as error:
            result.errors.append(str(error))
    scripts = list({script.path: script for script in scripts}.values())
    check_scripts(scripts, rules, result)
    return result


def check_scripts(
    scripts: Sequence[Script], rules: Sequence[Rule] | None, result: Checked
) -> Checked:
    """Check scripts that were already read, and add their findings to the result."""
    result.files += len(scripts)
    result.scripts |= {script.path: script for script in scripts}
    wanted = RULES if rules is None else rules
    found: dict[tuple[Path, int, int, str], Finding] = {}
    for program in programs(scripts):
        try:
            _check_program(program, wanted, found, result)
        except RecursionError:
            result.errors.append(
                f"{program.scripts[0].path} is nested too deeply to be checked. Leave it out, or "
                "split it."
            )
    result.findings += sorted(found.values(), key=lambda f: (str(f.path), f.line, f.column))
    return result


def _check_program(
    program: Project,
    rules: Sequence[Rule],
    found: dict[tuple[Path, int, int, str], Finding],
    result: Checked,
) -> None:
    training = Training(program)
    if training.framework is not None:
        result.frameworks.add(training.framework)
    elif not training.distributed:
        return
    result.distributed += 1
    for rule in rules:
        if rule.look is None or training.framework in rule.handled_by:
            continue
        for place in rule.look(training):
            finding = located(rule, place)
            key = (finding.path, finding.line, finding.column, rule.code)
            if key not in found and not ignored(finding, place.script.lines):
                found[key] = finding
                result.scripts.setdefault(finding.path, place.script)


def files(paths: Iterable[Path]) -> list[Path]:
    """Return the scripts and notebooks in files and folders."""
    found: dict[Path, None] = {}
    for path in paths:
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if isinstance(error, FileNotFoundError):
                raise SourceError(f"{path} does not exist. Check the spelling.") from None
            raise SourceError(f"{path} cannot be read: {why}.") from None
        if stat.S_ISDIR(mode):
            if not os.access(path, os.R_OK | os.X_OK):
                raise SourceError(
                    f"{path} cannot be read: change its permissions, or leave it out."
                )
            found |= dict.fromkeys(_inside(path))
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise SourceError(f"{path} is a device, not a script. Name a script or a folder.")
        else:
            found[path] = None
    return list(found)


def _inside(folder: Path) -> list[Path]:
    """Return the scripts and notebooks below a folder, without following links to folders."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        ]
        for name in names:
            path = Path(place, name)
            if path.suffix in (".py", ".ipynb") and path.is_file():
                found.append(path)
    return sorted(found)


def may_train(path: Path) -> bool:
    """Return whether a file may train: it names torch or a library built on torch.

    Other files are still read if a program imports them. Files larger than `MOST_BYTES` are not.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            return False
        content = path.read_bytes()
    except OSError:
        return True
    return any(name in content for name in _TRAINERS)


_TRAINERS = (
    b"torch",
    b"accelerate",
    b"lightning",
    b"deepspeed",
    b"transformers",
    b"horovod",
    b"ray",
)
