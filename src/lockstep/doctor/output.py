"""Findings for people, for other programs, and for code review."""

from __future__ import annotations

from typing import Any

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
    message = _escaped(f"{finding.message}. {finding.rule.advice}")
    title = f"{finding.rule.code} {finding.rule.name}"
    return (
        f"::{finding.severity} file={finding.path},line={finding.line},"
        f"col={finding.column + 1},endLine={finding.end_line},title={title}::{message}"
    )


def _escaped(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


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
            "message": {"text": f"{finding.message}. {finding.rule.advice}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": finding.path.as_posix()},
                        "region": {
                            "startLine": finding.line,
                            "startColumn": finding.column + 1,
                            "endLine": finding.end_line,
                            "endColumn": finding.end_column + 1,
                        },
                    }
                }
            ],
        }
        for finding in checked.findings
    ]
    driver = {"name": "lockstep doctor", "version": version, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
