"""Remember findings, so that later checks report only new ones."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from lockstep.doctor.check import Checked
from lockstep.doctor.findings import Finding, near
from lockstep.errors import UsageError
from lockstep.source.script import lines_of

_KIND = "lockstep doctor baseline"


def write(path: Path, checked: Checked) -> int:
    """Write all findings into a file; return their number."""
    marks = Counter(marks_of(checked).values())
    content = {"kind": _KIND, "version": 1, "findings": dict(sorted(marks.items()))}
    try:
        path.write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"--write-baseline {path}: {error.strerror}. Name another file.") from None
    return len(checked.findings)


def only_new(path: Path, checked: Checked) -> int:
    """Drop the findings that a baseline holds; return how many they are."""
    known = Counter(_read(path))
    marks = marks_of(checked)
    new = []
    for finding in checked.findings:
        mark = marks[finding]
        if known[mark]:
            known[mark] -= 1
        else:
            new.append(finding)
    dropped = len(checked.findings) - len(new)
    checked.findings[:] = new
    return dropped


def marks_of(checked: Checked) -> dict[Finding, str]:
    """Return a mark for each finding that stays when lines above it change."""
    lines: dict[Path, list[str]] = {}
    return {finding: _mark(finding, lines) for finding in checked.findings}


def _mark(finding: Finding, lines: dict[Path, list[str]]) -> str:
    path = finding.path
    if path not in lines:
        try:
            lines[path] = lines_of(path.read_text("utf-8", errors="replace"))
        except OSError:
            # Standard input
            lines[path] = []
    number = finding.line - 1
    text = lines[path][number].strip() if number < len(lines[path]) else ""
    place = near(path).as_posix()
    content = "\0".join((finding.rule.code, place, " ".join(text.split())))
    return f"{finding.rule.code} {place} {hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _read(path: Path) -> dict[str, int]:
    try:
        content = json.loads(path.read_text())
        if content["kind"] != _KIND:
            raise ValueError
        found = {str(mark): int(number) for mark, number in content["findings"].items()}
    except OSError as error:
        raise UsageError(
            f"--baseline {path}: {error.strerror}. Write one first: lockstep doctor "
            f"--write-baseline {path} FOLDER"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f"--baseline {path} is no baseline of lockstep doctor. Write one with --write-baseline."
        ) from None
    return found


def by_rule(findings: Iterable[Finding]) -> list[str]:
    """Return one line for each rule: its code, its name and how often it was found."""
    counts = Counter(finding.rule for finding in findings)
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0].code))
    width = max((len(rule.name) for rule in counts), default=0)
    return [f"  {rule.code}  {rule.name:{width}}  {number:4}" for rule, number in rows]
