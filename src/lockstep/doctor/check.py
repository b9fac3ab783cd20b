"""Check files and folders, and return the findings."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockstep.doctor.findings import Finding, Found, Rule, located, near
from lockstep.doctor.registry import RULES
from lockstep.errors import SourceError
from lockstep.processes.pool import in_parts
from lockstep.source.programs import programs
from lockstep.source.project import Project
from lockstep.source.reading import MOST_BYTES, read_script
from lockstep.source.script import Script
from lockstep.source.training import Training

SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", ".tox", "build", "dist"} | {
    "site-packages",
    ".ipynb_checkpoints",
}
_TRAINERS = re.compile(rb"torch|accelerate|lightning|deepspeed|transformers|horovod|ray")


FEW = 8
"""The smallest number of programs for which a process is started."""


@dataclass
class Checked:
    """The findings in some files, and which files were read."""

    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    distributed: int = 0
    """Number of programs that train on several replicas."""
    switched_off: int = 0
    """Number of programs that could, but whose data-parallel code is never reached."""
    numbers: list[int] = field(default_factory=list)
    """For each finding, the number of its program, while programs are checked."""
    frameworks: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    """Files that could not be read."""
    scripts: dict[Path, Script] = field(default_factory=dict)


def check(
    paths: Iterable[Path], rules: Sequence[Rule] | None = None, *, processes: int = 1
) -> Checked:
    """Check files and folders; each program is checked together with the modules it imports."""
    result = Checked()
    scripts = []
    for path in dict.fromkeys(paths):
        try:
            places = files(path)
        except SourceError as error:
            result.errors.append(str(error))
            continue
        for place in places:
            if place != path and not may_train(place):
                result.files += 1
                continue
            try:
                scripts.append(read_script(place))
            except SourceError as error:
                result.errors.append(str(error))
    every = list({s.path: s for s in scripts}.values())
    return check_scripts(every, rules, result, processes=processes)


def check_scripts(
    scripts: Sequence[Script],
    rules: Sequence[Rule] | None,
    result: Checked,
    *,
    processes: int = 1,
) -> Checked:
    """Check scripts that were already read, and add their findings to the result.

    With several `processes`, the result holds no scripts that were only read by import.
    """
    result.files += len(scripts)
    result.scripts |= {script.path: script for script in scripts}
    wanted = [rule for rule in RULES if not rule.on_request] if rules is None else rules
    every = programs(scripts, several_ranks=True)
    parts = min(processes, len(every) // FEW)

    def work(number: int) -> Checked:
        found = Checked()
        for place in range(number, len(every), max(1, parts)):
            _note_program(every[place], wanted, found)
            found.numbers += [place] * (len(found.findings) - len(found.numbers))
        if parts > 1:
            found.scripts.clear()
        return found

    found: list[tuple[int, Finding]] = []
    for part in in_parts(work, parts) if parts > 1 else [work(0)]:
        found += zip(part.numbers, part.findings, strict=True)
        result.distributed += part.distributed
        result.switched_off += part.switched_off
        result.frameworks |= part.frameworks
        result.errors += part.errors
        for path, script in part.scripts.items():
            result.scripts.setdefault(path, script)
    # Of what several programs share, the first program decides.
    found.sort(key=lambda pair: -pair[0])
    unique = {(f.path, f.line, f.column, f.rule.code): f for _, f in found}
    unique |= {(f.path, f.line, f.column, f.rule.code): f for f in result.findings}
    result.findings = sorted(unique.values(), key=lambda f: (str(f.path), f.line, f.column))
    return result


def _note_program(program: Project, rules: Sequence[Rule], result: Checked) -> None:
    try:
        for finding, script in _check_program(program, rules, result):
            if not finding.ignored(script.lines):
                result.findings.append(finding)
                result.scripts.setdefault(finding.path, script)
    except RecursionError:
        result.errors.append(
            f"{program.scripts[0].path} is nested too deeply to be checked. Leave it out, or "
            "split it."
        )


def _check_program(
    program: Project, rules: Sequence[Rule], result: Checked
) -> Iterator[tuple[Finding, Script]]:
    training = Training(program)
    if training.framework is not None:
        result.frameworks.add(training.framework)
    elif not training.distributed:
        result.switched_off += training.switched_off
        return
    result.distributed += 1
    for rule in rules:
        if rule.look is not None and training.framework not in rule.handled_by:
            kept: list[Found] = []
            for place in rule.look(training):
                # One defect gives one finding, also if both branches of an `if` have it.
                double = any(
                    other.script is place.script and place.script.apart(place.node, other.node)
                    for other in kept
                )
                if training.runs(place.script, place.node) and not double:
                    kept.append(place)
                    yield _as_given(located(rule, place), program), place.script


def _as_given(finding: Finding, program: Project) -> Finding:
    """Return a finding whose path is relative, if that of its program is."""
    if finding.path.is_absolute() and not program.scripts[0].path.is_absolute():
        return replace(finding, path=near(finding.path))
    return finding


def files(path: Path) -> list[Path]:
    """Return a file, or the scripts and notebooks in a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise SourceError(f"{path} does not exist. Check the spelling.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SourceError(f"{path} cannot be read: {why}.") from None
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise SourceError(f"{path} is a device, not a script. Name a script or a folder.")
    if not stat.S_ISDIR(mode):
        return [path]
    if not os.access(path, os.R_OK | os.X_OK):
        raise SourceError(f"{path} cannot be read: change its permissions, or leave it out.")
    return _inside(path)


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
    return _TRAINERS.search(content) is not None
