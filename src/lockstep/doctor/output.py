"""Findings for people, for other programs, and for code review."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lockstep.doctor.check import Checked
from lockstep.doctor.findings import Finding
from lockstep.doctor.registry import RULES


def text(finding: Finding) -> str:
    """Two lines: what and where, and what to do."""
    head = f"{finding.path}:{finding.where}: {finding.severity} {finding.rule.code}"
    fixable = ""
    if finding.fix is not None:
        flag = "--fix" if finding.fix.safe else "--unsafe-fixes"
        fixable = f" ({flag}: {finding.fix.title})"
    return f"{head} {finding.rule.name}: {finding.message}\n    {finding.rule.advice}{fixable}"


def summary(checked: Checked) -> str:
    """One line for all."""
    files = f"{checked.files} file{'s' * (checked.files != 1)}"
    if not checked.distributed:
        return f"{files}: no data-parallel training found, so there is nothing to check."
    errors = sum(finding.certain for finding in checked.findings)
    warnings = len(checked.findings) - errors
    known = f", written with {', '.join(sorted(checked.frameworks))}" if checked.frameworks else ""
    if not checked.findings:
        return f"{files}{known}: nothing found."
    return f"{files}{known}: {errors} error(s), {warnings} possible."


def github(finding: Finding) -> str:
    """A workflow command that annotates the line in a pull request."""
    message = _escaped(_sentence(finding))
    title = f"{finding.rule.code} {finding.rule.name}"
    path = _escaped(str(finding.path)).replace(":", "%3A").replace(",", "%2C")
    # A notebook's lines are not those of its file.
    place = f"line={finding.line},col={finding.column + 1},endLine={finding.end_line},"
    if _in_notebook(finding):
        place = ""
    return f"::{finding.severity} file={path},{place}title={title}::{message}"


def _escaped(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _in_notebook(finding: Finding) -> bool:
    return finding.path.suffix == ".ipynb"


def _sentence(finding: Finding) -> str:
    cell = f"{finding.where}: " if _in_notebook(finding) else ""
    return f"{cell}{finding.message}. {finding.rule.advice}"


def _uri(path: Path) -> str:
    """Relative to where the command runs, as code hosts want it."""
    with suppress(ValueError):
        path = path.resolve().relative_to(Path.cwd()) if path.is_absolute() else path
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def document(checked: Checked) -> dict[str, Any]:
    """For --json."""
    return {
        "files": checked.files,
        "distributed": checked.distributed,
        "frameworks": sorted(checked.frameworks),
        "findings": [finding.described() for finding in checked.findings],
        "errors": checked.errors,
    }


def sarif(checked: Checked, version: str) -> dict[str, Any]:
    """SARIF 2.1.0, which code hosts show beside the lines."""
    rules = [
        {
            "id": rule.code,
            "name": rule.name,
            "shortDescription": {"text": rule.summary},
            "help": {"text": rule.advice},
        }
        for rule in RULES
    ]
    results = [
        {
            "ruleId": finding.rule.code,
            "level": finding.severity,
            "message": {"text": _sentence(finding)},
            "locations": [{"physicalLocation": _physical(finding)}],
        }
        for finding in checked.findings
    ]
    driver = {"name": "lockstep doctor", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "results": results,
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": not checked.errors,
                        "toolExecutionNotifications": [
                            {"level": "error", "message": {"text": text}} for text in checked.errors
                        ],
                    }
                ],
            }
        ],
    }


def _physical(finding: Finding) -> dict[str, Any]:
    found: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.path)}}
    if not _in_notebook(finding):
        found["region"] = {
            "startLine": finding.line,
            "startColumn": finding.column + 1,
            "endLine": finding.end_line,
            "endColumn": finding.end_column + 1,
        }
    return found
