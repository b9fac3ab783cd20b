"""Run a submission in a separate process, with a scratch folder, a clean environment and limits.

The run ends at its time limit whatever the program does. Afterwards none of its processes is left,
and the grader knows how it ended.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep import world
from lockstep.assess.proctor import Request
from lockstep.probes.run_script import Outcome
from lockstep.probes.trace import Trace, read
from lockstep.processes.fresh import Process, start_fresh
from lockstep.processes.tree import alive, below, end_all, waits

POLL = 0.02
"""Seconds between looks for a new file of weights. The times of the epochs are this precise."""
LOOK = 0.5
"""Seconds between checks of the limits."""
MOST_OUTPUT = 8_000_000
MOST_PROCESSES = 200
"""How many processes a program may start besides its ranks. The workers of a loader are a few."""
LAST = 4000
"""How many of the last characters of a program's output to keep."""
WEIGHTS = re.compile(r"epoch-(\d+)\.pt")


@dataclass
class RunResult:
    """How the run of a request went."""

    request: Request
    how: str = "finished"
    """`finished`, `crashed`, `hung`, or the limit at which the run was ended: `limit`, `output`,
    `processes`; `broken` if the run could not be watched to its end."""
    codes: list[int | None] = field(default_factory=list)
    appeared: dict[int, float] = field(default_factory=dict)
    """When the weights of each epoch appeared, in seconds after the start."""
    trace: Trace | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Processes that the program left running."""
    stuck: list[list[str]] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)
    """The first `MOST_OUTPUT` bytes that each rank printed, as lines."""
    error: str = ""
    waits: dict[int, tuple[int, int]] = field(default_factory=dict)
    """How long each process had a CPU, and how long it waited for one."""

    @property
    def waited(self) -> float:
        """The share of the time that the processes waited for a CPU."""
        ran, waited = (sum(pair[n] for pair in self.waits.values()) for n in (0, 1))
        return waited / max(1, ran + waited)

    @property
    def last_words(self) -> str:
        """The end of the output of the rank that most likely caused an error."""
        texts = ["\n".join(lines).strip() for lines in self.lines]
        failed = [t for t, code in zip(texts, self.codes, strict=False) if code and t]
        # A rank that lost the others also prints an error, but a longer one.
        return min(failed or [t for t in texts if t] or [""], key=len)[-LAST:]


def supervise(request: Request, progress: Callable[[int], None]) -> RunResult:
    """Run a program to its end or to a limit; `progress` gets the number of finished epochs."""
    home, written = request.scratch / "home", request.scratch / "request.json"
    for folder in (request.scratch, home, request.out):
        folder.mkdir(parents=True, exist_ok=True)
    request.write(written)
    mark = secrets.token_hex(16)
    result = RunResult(request)
    with (request.scratch / "proctor.log").open("wb") as log:
        proctor = start_fresh(
            ["-P", "-m", "lockstep.assess.proctor", str(written)],
            env=world.confined(home, mark, see_gpus=request.on_gpus),
            output=log,
        )
    try:
        reached = _watch(proctor, result, progress)
    finally:
        end_all(proctor.pid, mark)
        proctor.wait()
    _read_report(result, reached)
    logs = sorted((request.notes / "ranks").glob("rank-*.log"))
    result.lines = [_lines(path) for path in logs]
    return result


def _watch(proctor: Process, result: RunResult, progress: Callable[[int], None]) -> str | None:
    """Wait for the proctor's report; return the limit that the run reached, if it did."""
    request = result.request
    checked = start = time.monotonic()
    while proctor.poll() is None and not request.report.exists():
        time.sleep(POLL)
        now = time.monotonic()
        for epoch in _epochs(request.out):
            result.appeared.setdefault(epoch, now - start)
        if now - checked < LOOK:
            continue
        checked = now
        progress(len(result.appeared))
        if now - start > request.seconds:
            return "limit"
        if sum(_size(log) for log in request.notes.glob("*/rank-*.log")) > MOST_OUTPUT:
            return "output"
        processes = below(proctor.pid) - {proctor.pid}
        result.waits |= waits(processes)
        if len(alive(processes)) > MOST_PROCESSES + request.replicas:
            return "processes"
    return None


def _read_report(result: RunResult, reached: str | None) -> None:
    request = result.request
    try:
        report = json.loads(request.report.read_text())
    except (OSError, json.JSONDecodeError):
        log = request.scratch / "proctor.log"
        said = _lines(log)[-1:] if log.is_file() else []
        report = {"error": ": ".join(["the process that watched it was ended", *said])}
    if reached is not None or "error" in report:
        result.how, result.error = reached or "broken", str(report.get("error", ""))
        return
    for name in ("how", "codes", "left", "findings", "stuck"):
        setattr(result, name, report[name])
    try:
        outcome = Outcome(result.how, result.codes)
        result.trace = read(request.notes / "ranks", outcome, alone=True)
        result.trace.oracle = report["oracle"]
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        # The probes do not write such notes, so the program wrote there.
        result.how = "broken"
        result.error = f"its notes are damaged: {type(error).__name__}: {error}"


def _epochs(out: Path) -> list[int]:
    try:
        found = [WEIGHTS.fullmatch(entry.name) for entry in os.scandir(out)]
    except OSError:
        return []  # the program deleted the folder
    return sorted(int(match[1]) for match in found if match is not None)


def _lines(log: Path) -> list[str]:
    with log.open("rb") as file:
        content = file.read(MOST_OUTPUT)
    return content.decode(errors="replace").splitlines()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
