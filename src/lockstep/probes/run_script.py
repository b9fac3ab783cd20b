"""Run a script as several ranks on this machine, and watch until it ends, crashes or hangs."""

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
from lockstep.processes.choose import imports, reason_for_fresh
from lockstep.processes.fork import end_group
from lockstep.processes.forked import start_forked
from lockstep.processes.fresh import Process, start_fresh
from lockstep.processes.ports import free_port

POLL, LOOK = 0.05, 0.5
"""Seconds between two checks whether a process has ended, and whether one made progress."""
GRACE = 5.0
"""Seconds without progress before the other ranks are ended, once one has failed or stopped."""
FOREVER = 10
"""Timeouts after which a rank that only computes, and records nothing, counts as hung."""
BUSY = 0.2
"""Share of the time above which a process counts as computing, not waiting."""
NEEDS_OTHERS = (*COLLECTIVES.split(), "backward", "wrapping", "init_process_group")
ENTRY = Path(__file__).parent / "entry"
"""A folder whose sitecustomize.py installs the probes in a new interpreter."""
PRELOAD = ("lockstep.probes.preload",)
"""Modules that a server imports, beside torch, before it forks scripts."""
TORCHVISION = "lockstep.probes.preload_torchvision"
"""What it imports as well if the script imports torchvision."""


@dataclass(frozen=True, kw_only=True)
class ScriptRun:
    """A script and how to run it."""

    script: Path
    arguments: tuple[str, ...] = ()
    ranks: int = 2
    """Processes to start, as torchrun does; 0 starts one process, which starts its own ranks."""
    settings: Settings
    timeout: float = 60.0
    """Seconds without progress after which the run counts as hung."""
    folder: Path | None = None
    """Folder that the script runs in; None means the current one."""
    on_gpus: bool = False
    """Whether the ranks have real GPUs. A rank may use the CPU while it waits for its GPU."""
    fork: bool = True
    """Whether to fork the script from a process that has imported torch, if that is safe."""
    other_hashes: bool = False
    """Whether each rank gets its own seed for the hashes of strings, the first one always 0."""


@dataclass
class Stuck:
    """The place where a process was when lockstep ended the run."""

    pid: int
    doing: str
    stack: str


@dataclass
class Outcome:
    """How a run ended."""

    how: str
    """`finished`, `crashed` or `hung`."""
    codes: list[int | None]
    """Exit codes of the started processes; None if lockstep ended the process."""
    stuck: list[Stuck] = field(default_factory=list)
    seconds: float = 0.0
    logs: list[Path] = field(default_factory=list)


def run(job: ScriptRun, progress: Callable[[], None] = lambda: None) -> Outcome:
    """Run a script and wait for its end. The ranks print to files in the settings' folder."""
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
            if job.settings.stand_in_data:
                # The hub cannot be asked for what is missing, and asking takes minutes.
                env |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
            processes.append(_start(job, rank, env, log))
        _watch(job, processes, outcome, progress)
    finally:
        outcome.codes = [_code(process, folder) for process in processes]
        for process in processes:
            # Also end children that outlived the process.
            end_group(process.pid)
            process.wait()
        outcome.seconds = time.monotonic() - start
    # Once one rank has stopped as asked, others may fail because it is missing.
    if outcome.how == "finished" and any(outcome.codes) and not (folder / STOPPED).exists():
        outcome.how = "crashed"
    return outcome


def _start(job: ScriptRun, rank: int, env: dict[str, str], log: Path) -> Process:
    """Start one rank: forked if that is safe for its script, in a new interpreter otherwise."""
    # Some scripts want their rank as an argument: --local_rank {rank}
    command = [str(job.script), *(a.replace("{rank}", str(rank)) for a in job.arguments)]
    vision = (TORCHVISION,) if imports(job.script, "torchvision") else ()
    preload = (*PRELOAD, *vision, *job.settings.early)
    may_fork = job.fork and not job.on_gpus and reason_for_fresh(job.script, env, preload) is None
    with log.open("wb") as output:
        if not may_fork:
            if job.other_hashes:
                # As in a real run, ranks hash strings apart; the first does it as one process does.
                env = {**env, "PYTHONHASHSEED": env.get("RANK", "0")}
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
    """Return the exit code of a process, or None while it runs."""
    code = process.poll()
    now = folder / f"{process.pid}.now"
    # Threads of gloo may abort a process that has finished and left its group.
    left = code is not None and code < 0 and now.exists() and _doing(now).startswith(LEAVES)
    return 0 if left else code


def _watch(
    job: ScriptRun, processes: list[Process], outcome: Outcome, progress: Callable[[], None]
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
        # A rank that has exited can never join a collective in which another rank waits.
        living = _living(folder)
        alone = 0 in codes and any(doing.startswith(NEEDS_OTHERS) for doing in living)
        # Destroying the group while a DDP model is alive sometimes hangs; the work is done then.
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
    """Return what each living process is about to do."""
    return [_doing(now) for now in folder.glob("*.now") if Path(f"/proc/{now.stem}").exists()]


def _doing(now: Path) -> str:
    return now.read_text(errors="replace").partition("\n")[0]


def _pulse(folder: Path) -> str:
    """Return a text that changes whenever a process records something."""
    sizes = [str(path.stat().st_size) for path in sorted(folder.glob("*.jsonl"))]
    return " ".join([*sizes, *(now.read_text(errors="replace") for now in folder.glob("*.now"))])


def _work(processes: list[Process]) -> float:
    """Return the seconds of CPU time that the processes and their children have used."""
    groups = {process.pid for process in processes}
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has exited
        if int(fields[2]) in groups:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _stacks(folder: Path) -> list[Stuck]:
    """Ask every living process for its stack."""
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
    return [
        Stuck(pid, _doing(now), _of_script(stack.read_text(errors="replace")))
        for pid, now, stack in asked
    ]


def _of_script(stack: str) -> str:
    """Return a stack without the calls of the server that forked the script.

    The main thread comes last, and its outermost call at the end.
    """
    lines = stack.splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if f'"{server.__file__}"' in line]
    return "".join(lines[: ends[0]] if ends else lines)
