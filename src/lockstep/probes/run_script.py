"""Starts a script as several ranks on this machine, and watches until it ends, crashes or hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lockstep import world
from lockstep.probes.names import COLLECTIVES
from lockstep.probes.recorder import LEAVES, SIGNAL, STOPPED
from lockstep.probes.settings import Settings
from lockstep.processes import server
from lockstep.processes.choose import reason_for_fresh
from lockstep.processes.fork import end_group
from lockstep.processes.forked import start_forked
from lockstep.processes.fresh import Process, start_fresh
from lockstep.processes.ports import free_port

POLL, LOOK = 0.05, 0.5
"""Seconds between looks at whether a process has ended, and at how far they are."""
GRACE = 5.0
"""Seconds without progress that other ranks have when one has failed, or was ended as asked."""
FOREVER = 10
"""Timeouts after which a rank that computes, and of which nothing else is seen, has hung too."""
BUSY = 0.2
"""Share of the time that a process works if it is not waiting."""
NEEDS_OTHERS = (*COLLECTIVES, "backward", "wrapping", "init_process_group")
ENTRY = Path(__file__).parent / "entry"
"""A folder whose sitecustomize.py installs the probes in a new interpreter."""
PRELOAD = ("lockstep.probes.preload",)
"""What a server imports, beside torch, before it forks scripts."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A script and how to start it."""

    script: Path
    arguments: tuple[str, ...] = ()
    ranks: int = 2
    """Processes to start, as torchrun would; 0: a plain one, which starts its ranks itself."""
    settings: Settings
    timeout: float = 60.0
    """Seconds without any progress that are taken for a hang."""
    folder: Path | None = None
    """Where it runs; None: here."""
    on_gpus: bool = False
    """Whether the ranks have real GPUs. A rank that waits for one may be busy all the same."""
    fork: bool = True
    """Whether the script may be forked from a process that has torch, if it could not notice."""


@dataclass
class Stuck:
    """Where a process was when the run was ended from outside."""

    pid: int
    doing: str
    stack: str


@dataclass
class Outcome:
    """How a run ended."""

    how: str
    """`finished`, `crashed` or `hung`."""
    codes: list[int | None]
    """Exit codes of the processes that were started; None: ended from outside."""
    stuck: list[Stuck] = field(default_factory=list)
    seconds: float = 0.0
    logs: list[Path] = field(default_factory=list)


def run(job: Job, progress: Callable[[], None] = lambda: None) -> Outcome:
    """Start it, and wait. What the ranks say goes to files in the job's folder."""
    folder = Path(job.settings.folder)
    settings = job.settings.write()
    start, port = time.monotonic(), free_port()
    outcome = Outcome("finished", [])
    processes: list[Process] = []
    try:
        for rank in range(max(1, job.ranks)):
            log = folder / f"rank-{rank}.log"
            outcome.logs.append(log)
            env = world.environment_of(rank, job.ranks, port, settings, ENTRY, on_gpus=job.on_gpus)
            processes.append(_start(job, env, log))
        _watch(job, processes, outcome, progress)
    finally:
        outcome.codes = [_code(process, folder) for process in processes]
        for process in processes:
            _end(process)
        outcome.seconds = time.monotonic() - start
    # When one rank was ended as asked, others may fail for want of it.
    if outcome.how == "finished" and any(outcome.codes) and not (folder / STOPPED).exists():
        outcome.how = "crashed"
    return outcome


def _start(job: Job, env: dict[str, str], log: Path) -> Process:
    """Start one rank: forked if the script cannot notice it, fresh otherwise."""
    command = [str(job.script), *job.arguments]
    preload = (*PRELOAD, *job.settings.early)
    may_fork = job.fork and not job.on_gpus and reason_for_fresh(job.script, env, preload) is None
    with log.open("wb") as output:
        if not may_fork:
            return start_fresh(command, env=env, output=output, cwd=job.folder)
        return start_forked(
            command,
            env=env,
            output=output,
            cwd=job.folder,
            hook="lockstep.probes.enter:enter",
            preload=preload,
        )


def _code(process: Process, folder: Path) -> int | None:
    """Its exit code; None as long as it lives."""
    code = process.poll()
    now = folder / f"{process.pid}.now"
    # Threads of gloo may abort a process that has left the others, and is through.
    left = code is not None and code < 0 and now.exists() and _doing(now).startswith(LEAVES)
    return 0 if left else code


def _watch(
    job: Job,
    processes: list[Process],
    outcome: Outcome,
    progress: Callable[[], None],
) -> None:
    folder = Path(job.settings.folder)
    pulse, work, ended = "", 0.0, 0
    moved = noted = looked = time.monotonic()
    while any(process.poll() is None for process in processes):
        time.sleep(POLL)
        now = time.monotonic()
        if now - looked < LOOK:
            continue
        looked = now
        progress()
        latest = _pulse(folder)
        done = _work(processes) if not job.on_gpus else 0.0
        codes = [_code(process, folder) for process in processes]
        over = sum(code is not None for code in codes)
        if latest != pulse or over > ended:
            noted = now
        # A rank that computes makes progress. One that waits uses little of its time.
        if noted == now or done - work > BUSY * (now - moved):
            pulse, work, ended, moved = latest, done, over, now
        stopped = (folder / STOPPED).exists()
        if any(codes) and not stopped:
            outcome.how = "crashed"
        # Who is gone can never join a collective that another rank waits in.
        living = _living(folder)
        alone = 0 in codes and any(doing.startswith(NEEDS_OTHERS) for doing in living)
        # To take the group down while DDP is there hangs now and then; all is done by then.
        through = bool(living) and all(d.startswith(LEAVES) for d in living)
        soon = stopped or outcome.how == "crashed" or alone or through
        limit = min(GRACE, job.timeout) if soon else job.timeout
        if now - moved > limit or now - noted > FOREVER * job.timeout:
            if not (stopped or through) and outcome.how == "finished":
                outcome.how = "hung"
            if outcome.how != "finished":
                outcome.stuck = _stacks(folder)
            return


def _living(folder: Path) -> list[str]:
    """What the processes that live are about to do."""
    return [_doing(now) for now in folder.glob("*.now") if Path(f"/proc/{now.stem}").exists()]


def _doing(now: Path) -> str:
    return now.read_text(errors="replace").partition("\n")[0]


def _pulse(folder: Path) -> str:
    """What changes as long as any process notes anything."""
    sizes = [str(path.stat().st_size) for path in sorted(folder.glob("*.jsonl"))]
    return " ".join([*sizes, *(now.read_text(errors="replace") for now in folder.glob("*.now"))])


def _work(processes: list[Process]) -> float:
    """Seconds of CPU time that the processes and what they started have used."""
    groups = {process.pid for process in processes}
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # gone by now
        if int(fields[2]) in groups:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _stacks(folder: Path) -> list[Stuck]:
    """Ask every process that still lives where it is."""
    found = []
    asked = []
    for now in sorted(folder.glob("*.now")):
        pid = int(now.stem)
        stack = folder / f"{pid}.stack"
        if not stack.exists() or not Path(f"/proc/{pid}").exists():
            continue
        try:
            os.kill(pid, SIGNAL)
        except ProcessLookupError:
            continue
        asked.append((pid, now, stack))
    time.sleep(0.5)
    for pid, now, stack in asked:
        found.append(Stuck(pid, _doing(now), _of_script(stack.read_text(errors="replace"))))
    return found


def _of_script(stack: str) -> str:
    """Cut a stack where the script ends and the server that forked it begins.

    The main thread comes last, its outermost call at the end.
    """
    lines = stack.splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if f'"{server.__file__}"' in line]
    return "".join(lines[: ends[0]] if ends else lines)


def _end(process: Process) -> None:
    """End a process and everything in its group, also children that outlived it."""
    end_group(process.pid)
    process.wait()
