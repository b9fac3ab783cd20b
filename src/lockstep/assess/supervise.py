"""Runs a program apart from everything: a scratch folder, a clean environment, a time limit.

Whatever it does, it is over when the limit is, nothing of it stays, and the grader knows how it
ended.
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
from lockstep.assess.proctor import REPORT, Orders
from lockstep.probes.run_script import Outcome
from lockstep.probes.trace import Trace, read
from lockstep.processes.fresh import Process, start_fresh
from lockstep.processes.tree import alive, below, end_all, waits

POLL = 0.02
"""Seconds between looks for a new file of weights. It is what times are measured by."""
LOOK = 0.5
"""Seconds between looks at everything else."""
MOST_OUTPUT = 8_000_000
MOST_PROCESSES = 200
"""Beside the ranks; a loader's workers are a few."""
LAST = 4000
"""Bytes of the last words."""
WEIGHTS = re.compile(r"epoch-(\d+)\.pt")


@dataclass(frozen=True, kw_only=True)
class Sitting:
    """A program and how it is run."""

    work: Path
    """The folder with train.py."""
    scratch: Path
    """A new folder for everything that the run makes."""
    arguments: tuple[str, ...]
    out: Path
    replicas: int
    seconds: float
    """After which it is ended."""
    timeout: float = 60.0
    """Seconds without any progress that are taken for a hang."""
    oracle: bool = False
    on_gpus: bool = False


@dataclass
class Sat:
    """How it went."""

    how: str
    """`finished`, `crashed`, `hung`, or why it was ended: `limit`, `output`, `processes`; `broken`
    if the run could not be watched to its end."""
    seconds: float
    codes: list[int | None] = field(default_factory=list)
    appeared: dict[int, float] = field(default_factory=dict)
    """When the weights of each epoch were there, in seconds."""
    trace: Trace | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Processes that it left behind."""
    stuck: list[list[str]] = field(default_factory=list)
    lines: list[list[str]] = field(default_factory=list)
    """What each rank printed, as far as it was kept."""
    error: str = ""
    waits: dict[int, tuple[int, int]] = field(default_factory=dict)
    """How long each of its processes had a CPU, and waited for one."""

    @property
    def waited(self) -> float:
        """Share of the time that its processes were kept from a CPU, by whatever else runs."""
        ran, waited = (sum(pair[n] for pair in self.waits.values()) for n in (0, 1))
        return waited / max(1, ran + waited)

    @property
    def last_words(self) -> str:
        """Of the rank that says most about an error."""
        texts = ["\n".join(lines).strip() for lines in self.lines]
        failed = [t for t, code in zip(texts, self.codes, strict=False) if code and t]
        # A rank that lost the others complains too: an error of one's own is shorter.
        return min(failed or [t for t in texts if t] or [""], key=len)[-LAST:]


def hold(what: Sitting, look: Callable[[int], None] = lambda epochs: None) -> Sat:
    """Run it to its end, or end it; `look` is told how many epochs are done."""
    notes, home = what.scratch / "notes", what.scratch / "home"
    for folder in (what.scratch, home, what.out):
        folder.mkdir(parents=True, exist_ok=True)
    orders = what.scratch / "orders.json"
    Orders(
        work=str(what.work),
        notes=str(notes),
        arguments=what.arguments,
        replicas=what.replicas,
        timeout=what.timeout,
        oracle=what.oracle,
        on_gpus=what.on_gpus,
    ).write(orders)
    mark = secrets.token_hex(16)
    start = time.monotonic()
    sat = Sat("finished", 0.0)
    with (what.scratch / "proctor.log").open("wb") as log:
        proctor = start_fresh(
            ["-P", "-m", "lockstep.assess.proctor", str(orders)],
            env=world.confined(home, mark, see_gpus=what.on_gpus),
            output=log,
        )
    try:
        ended = _watch(what, proctor, notes, sat, start, look)
    finally:
        end_all(proctor.pid, mark)
        proctor.wait()
    sat.seconds = time.monotonic() - start
    _read_report(notes, sat, ended)
    sat.lines = [_lines(path) for path in sorted((notes / "ranks").glob("rank-*.log"))]
    return sat


def _watch(
    what: Sitting,
    proctor: Process,
    notes: Path,
    sat: Sat,
    start: float,
    look: Callable[[int], None],
) -> str | None:
    """Until the report is there; why the run was ended, if it was."""
    looked = start
    while proctor.poll() is None and not (notes / REPORT).exists():
        time.sleep(POLL)
        now = time.monotonic()
        for epoch in _epochs(what.out):
            sat.appeared.setdefault(epoch, now - start)
        if now - looked < LOOK:
            continue
        looked = now
        look(len(sat.appeared))
        if now - start > what.seconds:
            return "limit"
        if sum(_size(log) for log in notes.glob("*/rank-*.log")) > MOST_OUTPUT:
            return "output"
        processes = below(proctor.pid) - {proctor.pid}
        sat.waits |= waits(processes)
        if len(alive(processes)) > MOST_PROCESSES + what.replicas:
            return "processes"
    return None


def _read_report(notes: Path, sat: Sat, ended: str | None) -> None:
    try:
        report = json.loads((notes / REPORT).read_text())
    except (OSError, json.JSONDecodeError):
        log = notes.parent / "proctor.log"
        said = _lines(log)[-1:] if log.is_file() else []
        report = {"error": ": ".join(["the process that watched it was ended", *said])}
    if ended is not None or "error" in report:
        sat.how, sat.error = ended or "broken", str(report.get("error", ""))
        return
    sat.how, sat.codes = report["how"], report["codes"]
    sat.left, sat.findings, sat.stuck = report["left"], report["findings"], report["stuck"]
    try:
        sat.trace = read(notes / "ranks", Outcome(sat.how, sat.codes), alone=True)
        sat.trace.oracle = report["oracle"]
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        # Notes that are not as the probes write them: the program wrote there.
        sat.how, sat.error = "broken", f"its notes are damaged: {type(error).__name__}: {error}"


def _epochs(out: Path) -> list[int]:
    try:
        found = [WEIGHTS.fullmatch(entry.name) for entry in os.scandir(out)]
    except OSError:
        return []  # it took the folder away
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
