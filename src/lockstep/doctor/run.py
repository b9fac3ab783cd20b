"""Run a script on several ranks and let the rules look at what the ranks did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.console import Progress
from lockstep.doctor.findings import Finding, Rule, witnessed
from lockstep.doctor.registry import watchers
from lockstep.probes.names import FIRST_STEP, MORE_BATCHES
from lockstep.probes.run_script import ScriptRun, run
from lockstep.probes.settings import Settings
from lockstep.probes.trace import Event, Trace, read
from lockstep.source.script import lines_of
from lockstep.source.training import Training

STARTERS = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.start_processes",
    "torch.multiprocessing.Process",
    "multiprocessing.Process",
    "accelerate.notebook_launcher",
    "torch.distributed.run.main",
    "torch.distributed.launcher.api.elastic_launch",
)
"""Functions that start ranks: a script that calls one starts its ranks itself."""
EXPLAINED_BY = {
    "replicas_drift": {"LS10", "LS11", "LS12", "LS15", "LS19", "LS23"},
    "gradient_differs": {"LS10", "LS11", "LS12", "LS15", "LS17", "LS18"},
    "misplaced_clipping": {"LS10", "LS11", "LS15"},
    "collective_in_branch": {"LS05"},
}
"""For each rule, the codes of findings that explain its finding and replace it."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """The script to run, and how to run it."""

    script: Path
    arguments: tuple[str, ...] = ()
    replicas: int = 2
    steps: int | None = 30
    """The largest number of optimizer steps; None: no limit."""
    batches: int | None = None
    """The largest number of batches in each pass over a loader; None: no limit."""
    timeout: float = 60.0
    """A run that makes no progress for this many seconds has hung."""
    starts_itself: bool = False
    """Whether the script starts its ranks itself: plain python runs it, not torchrun."""
    resume: tuple[str, ...] | None = None
    """Arguments of a second start that resumes from what the first one saved."""
    gpus: int | None = None
    """The number of GPUs that the CPU stands in for; None: use the GPUs of this machine."""
    real_gpus: bool = False
    """Whether the ranks compute on GPUs of this machine."""
    oracle: bool = True
    stand_in_data: bool = False
    """Whether to stand in for missing data and libraries."""
    early: tuple[str, ...] = ()
    """Modules that the probes install first in every process."""


@dataclass
class Examined:
    """The trace of a run and its findings."""

    trace: Trace
    findings: list[Finding] = field(default_factory=list)


def starts_itself(training: Training) -> bool:
    """Return whether a program starts its own ranks."""
    return any(True for _ in training.named(*STARTERS)) or training.framework == "Lightning"


def examine(
    what: Examination,
    folder: Path,
    rules: Sequence[Rule],
    progress: Progress | None = None,
) -> Examined:
    """Run the script, repeat its first step on one rank, and apply all rules."""
    progress = progress or Progress()
    how = "with python" if what.starts_itself else "as torchrun does"
    progress.say(f"starting {what.script} {how} on {what.replicas} ranks")
    trace = _run(what, folder / "ranks", what.arguments, what.replicas, progress)
    examined = Examined(trace)
    if len(trace.ranks) < 2:
        return examined
    if what.resume is not None:
        progress.say("starting it again, to resume from its checkpoint")
        trace.resumed = _run(what, folder / "resumed", what.resume, what.replicas, progress)
    if what.oracle and len(_kept(folder)) == trace.size:
        progress.say("repeating its first step on one rank")
        trace.oracle = _ask(what, folder)
    elif what.oracle:
        trace.oracle = next(trace.of("oracle"), None)
    examined.findings = watched(trace, what.script, rules)
    return examined


def watched(trace: Trace, script: Path, rules: Sequence[Rule]) -> list[Finding]:
    """Return what the rules find in a run. Findings without a place point to the script."""
    found = []
    for rule in rules:
        watch = watchers().get(rule.name)
        for seen in watch(trace) if watch is not None else ():
            finding = witnessed(rule, seen, script)
            if not finding.ignored(_lines(finding.path)):
                found.append(finding)
    codes = {finding.rule.code for finding in found}
    return [f for f in found if not EXPLAINED_BY.get(f.rule.name, set()) & codes]


def _run(
    what: Examination, folder: Path, arguments: tuple[str, ...], ranks: int, progress: Progress
) -> Trace:
    folder.mkdir(parents=True)
    settings = Settings(
        folder=str(folder),
        steps=what.steps,
        batches=what.batches,
        gpus=what.gpus,
        stand_in_data=what.stand_in_data,
        early=what.early,
    )
    trace = _started(what, settings, arguments, ranks, _steps_of(folder, progress))
    trace.cut = what.batches is not None
    if trace.joins and any(trace.of("stopped")):
        # lockstep stopped one rank at the step limit; a rank with fewer steps could only fail.
        trace.outcome.how, trace.outcome.stuck = "finished", []
    return trace


def _steps_of(folder: Path, progress: Progress) -> Callable[[], None]:
    """Return a function that updates the progress bar from the first process that takes steps."""
    spoke = time.monotonic()
    done, read_to = 0, 0
    notes: Path | None = None

    def look() -> None:
        nonlocal spoke, done, read_to, notes
        if time.monotonic() - spoke < 0.5:
            return
        spoke = time.monotonic()
        if not done:
            notes = max(folder.glob("*.jsonl"), key=lambda p: p.stat().st_size, default=None)
            read_to = 0
        if notes is not None:
            content = notes.read_bytes()
            done += content.count(b'{"kind": "step"', read_to)
            read_to = len(content)
            progress.step(done)

    return look


def _started(
    what: Examination,
    settings: Settings,
    arguments: tuple[str, ...],
    ranks: int,
    look: Callable[[], None] = lambda: None,
    *,
    alone: bool = False,
) -> Trace:
    outcome = run(
        ScriptRun(
            script=what.script,
            arguments=arguments,
            ranks=0 if what.starts_itself else ranks,
            settings=settings,
            timeout=what.timeout,
            on_gpus=what.real_gpus,
        ),
        look,
    )
    return read(Path(settings.folder), outcome, alone=alone)


def _ask(what: Examination, folder: Path) -> Event:
    """Return the verdict of the gradient oracle, or why there is none."""
    kept = folder / "ranks"
    verdict: Event = {
        "verdict": "impossible",
        "why": "the script did not reach its first step on one rank",
    }
    for joined in (True, False):
        place = folder / f"one-{'joined' if joined else 'apart'}"
        place.mkdir()
        settings = Settings(
            folder=str(place),
            gpus=None if what.gpus is None else 1,
            oracle=str(kept),
            joined=joined,
            stand_in_data=what.stand_in_data,
            early=what.early,
        )
        # Some programs create no process group for one process.
        one = _started(what, settings, what.arguments, 1, alone=True)
        for rank in one.ranks:
            verdict = next(rank.of("oracle"), verdict)
        if verdict.get("why") != MORE_BATCHES:
            break
    for file in _kept(folder):
        file.unlink()
    return verdict


def _kept(folder: Path) -> list[Path]:
    """Return the files in which each rank kept its first step."""
    return list((folder / "ranks").glob(FIRST_STEP.format("*")))


def acquitted(finding: Finding, trace: Trace) -> bool:
    """Return whether the run disproves a finding in the source: only one rank saved here."""
    if finding.rule.code != "LS25":
        return False
    place = f"{finding.path.resolve()}:{finding.line}"
    writers = {r.number for r in trace.ranks for e in r.of("wrote") if e["place"] == place}
    return len(writers) == 1


def _lines(path: Path) -> list[str]:
    try:
        return lines_of(path.read_text(errors="replace"))
    except OSError:
        return []
