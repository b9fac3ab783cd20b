"""Format findings for people, other programs and code review."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lockstep.doctor.baseline import marks_of
from lockstep.doctor.check import Checked
from lockstep.doctor.findings import Finding
from lockstep.doctor.registry import RULES

_COUNTS = {
    "distinct": "distinct",
    "shared": "on all ranks",
    "twice": "repeated",
    "missing": "never taken",
}
"""Numbers of samples in a pass, and their names for people."""


def text(finding: Finding) -> str:
    """Return two lines: what is wrong where, and how to repair it."""
    head = f"{finding.path}:{finding.where}: {finding.severity} {finding.rule.code}"
    fixable = ""
    if finding.fix is not None:
        flag = "--fix" if finding.fix.safe else "--unsafe-fixes"
        fixable = f" ({flag}: {finding.fix.title})"
    return f"{head} {finding.rule.name}: {finding.message}\n    {finding.rule.advice}{fixable}"


def summary(checked: Checked) -> str:
    """Return one line that sums up all findings."""
    files = f"{checked.files} file{'s' * (checked.files != 1)}"
    if not checked.distributed and checked.switched_off:
        return (
            f"{files}: the data-parallel code is never reached as the program is written, so "
            "nothing was checked. Is it switched off, as by distributed = False?"
        )
    if not checked.distributed:
        return f"{files}: no data-parallel training found, so there is nothing to check."
    errors = sum(finding.certain for finding in checked.findings)
    warnings = len(checked.findings) - errors
    known = f", written with {', '.join(sorted(checked.frameworks))}" if checked.frameworks else ""
    if not checked.findings:
        return f"{files}{known}: nothing found."
    return f"{files}{known}: {errors} error(s), {warnings} possible."


def running(facts: dict[str, Any]) -> list[str]:
    """Return what a run showed, as lines for a terminal."""
    found = []
    if facts["fake_cuda"]:
        found.append(f"The CPU stood in for {', '.join(facts['fake_cuda'])}.")
    if facts["fake_data"]:
        found.append(f"Missing here, so replaced: {'; '.join(facts['fake_data'])}.")
    if facts["steps"]:
        reductions = facts["reductions_per_step"]
        found.append(
            f"{facts['ranks']} ranks ({facts['backend']}), {facts['steps']} steps, "
            # Without a loader, the global batch is unknown.
            + f"global batch {facts['global_batch']}, " * bool(facts["global_batch"])
            + f"{reductions} reduction(s) per step, " * (reductions is not None)
            + f"{facts['waiting']:.0%} of the time waiting for data"
        )
        rates = facts["rates"]
        first, last = rates[0][0][0], rates[0][1][0]
        same = "on all ranks" if all(r == rates[0] for r in rates) else "differing between ranks"
        plans = "".join(
            f"; {s['type']} stepped {s['stepped']} time(s)" for s in facts["schedulers"]
        )
        found.append(f"learning rate {first:g} to {last:g}, {same}{plans}")
    found += map(_pass, facts["passes"])
    drift = facts["drift"]
    if drift["looked"]:
        step = drift["parameters_differ_after_step"]
        state = f"differ from step {step} on" if step else "equal to the bit"
        buffers = "; buffers differ between ranks" if drift["buffers_differ"] else ""
        found.append(f"parameters: {state} ({drift['looked']} steps checked){buffers}")
    if facts["oracle"] is not None:
        found.append(_oracle(facts["oracle"], facts["ranks"]))
    for one in facts["files"]:
        ranks = f"rank{'s' * (len(one['ranks']) > 1)} {', '.join(map(str, one['ranks']))}"
        found.append(f"file {one['path']}: written by {ranks}")
    found += ending(facts)
    return found


def ending(facts: dict[str, Any]) -> list[str]:
    """Return how a run ended, if it did not end well."""
    found = []
    if facts["ended"] == "hung":
        found.append("The run hung and was ended. Where each rank was:")
    elif facts["ended"] == "crashed":
        found.append("The script failed. Last output:")
        found += [f"    {line}" for line in facts["last_words"]]
        if facts["stuck"]:
            found.append("Where the other ranks were:")
    for one in facts["stuck"]:
        who = "a process without a rank" if one["rank"] is None else f"rank {one['rank']}"
        last = f"; last collective {one['last_collective']}" if one["last_collective"] else ""
        found.append(f"  {who}: {one['doing']}{last}")
        found += [f"      {frame}" for frame in one["stack"]]
    if facts["resumed"] not in (None, "finished"):
        found.append(f"The second start, which should resume from the first, {facts['resumed']}.")
    if facts["not_seen"] and facts["ended"] == "finished":
        found.append(f"not seen in this run: {', '.join(facts['not_seen'])}")
    return found


def _pass(one: dict[str, Any]) -> str:
    kind = "training" if one["trains"] else "evaluation" if one["complete"] else "no training"
    counts = "+".join(map(str, one["samples"]))
    facts = [f"{counts} samples"]
    if one["data_set"] is not None:
        facts[0] += f" of {one['data_set']}"
    facts += [f"{one[fact]} {name}" for fact, name in _COUNTS.items() if one[fact]]
    if one["order"] and one["trains"]:
        facts.append(f"{one['order']} order")
    if not one["complete"]:
        facts.append("not finished")
    return f"{kind}, pass {one['pass']} over the loader at {one['loader']}: {', '.join(facts)}"


def _oracle(one: dict[str, Any], ranks: int) -> str:
    if one["verdict"] == "impossible":
        return f"gradient oracle: no verdict, since {one['why']}"
    apart = f" ({' and '.join(one['by_rank'])} rank by rank)" if one["by_rank"] else ""
    return (
        f"gradient oracle: the gradient of {ranks} ranks {one['verdict']}"
        f"{' from' if one['verdict'] == 'differs' else ' with'} that of one process{apart}: "
        f"largest difference {one['worst']:.2g}, rounding explains {one['tolerance']:.2g}"
    )


def github(finding: Finding) -> str:
    """Return a workflow command that annotates the line in a pull request."""
    message = _escaped(_sentence(finding))
    title = f"{finding.rule.code} {finding.rule.name}"
    path = _escaped(str(finding.path)).replace(":", "%3A").replace(",", "%2C")
    # The lines of a notebook are not the lines of its file.
    place = f"line={finding.line},col={finding.column + 1},endLine={finding.end_line},"
    place *= not _in_notebook(finding)
    return f"::{finding.severity} file={path},{place}title={title}::{message}"


def _escaped(message: str) -> str:
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _in_notebook(finding: Finding) -> bool:
    return finding.path.suffix == ".ipynb"


def _sentence(finding: Finding) -> str:
    cell = f"{finding.where}: " if _in_notebook(finding) else ""
    return f"{cell}{finding.message}. {finding.rule.advice}"


def _uri(path: Path) -> str:
    """Return a URI relative to the current folder, as code hosts expect it."""
    with suppress(ValueError):
        path = path.resolve().relative_to(Path.cwd()) if path.is_absolute() else path
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def document(checked: Checked) -> dict[str, Any]:
    """Return the document that --json prints."""
    return {
        "files": checked.files,
        "distributed": checked.distributed,
        "switched_off": checked.switched_off,
        "frameworks": sorted(checked.frameworks),
        "findings": [finding.described() for finding in checked.findings],
        "errors": checked.errors,
    }


def sarif(checked: Checked, version: str) -> dict[str, Any]:
    """Return SARIF 2.1.0, which code hosts show beside the lines."""
    marks = marks_of(checked)
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
            # By these, a code host knows a finding again when lines above it change.
            "partialFingerprints": {"lockstep/v1": marks[finding]},
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
