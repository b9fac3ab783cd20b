"""A program on one process or on several, as it is: nobody watches, so that its speed is its own.

The processes are forked from one that has imported torch, which saves each of them seconds.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
from pathlib import Path

from lockstep.errors import ReplicaDied
from lockstep.labs.lab2_ddp.data import write_digits
from lockstep.labs.lab2_ddp.lines import Printed, printed
from lockstep.processes.replicas import run_replicas
from lockstep.world import World, announce

SCRIPT = "train.py"
LIMIT = 60
"""Seconds of one run."""


def run(
    folder: Path, text: str, processes: int, arguments: tuple[str, ...]
) -> tuple[list[Printed], str]:
    """What each process printed, and why it failed if it did."""
    # Here and not above: only this process, which forks, has use for torch.
    from lockstep.engine.group import disable_leaving

    folder.mkdir()
    folder.joinpath(SCRIPT).write_text(text)
    write_digits(folder)
    port = _free_port()

    def work(rank: int, store: str) -> None:
        # The default: the process ends, and those who wait for it with it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT)
        os.chdir(folder)
        output = os.open(f"{rank}.log", os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if processes > 1:
            announce(World(rank=rank, size=processes, local_rank=rank), port)
        # What comes after the training is not measured, and must not hang.
        disable_leaving()
        sys.argv = [SCRIPT, *arguments]
        runpy.run_path(SCRIPT, run_name="__main__")

    failed = ""
    try:
        run_replicas(processes, work)
    except ReplicaDied as error:
        failed = str(error).splitlines()[0]
        if signal.SIGALRM.name in failed:
            failed = f"It took longer than {LIMIT} seconds and was ended."
    logs = [folder / f"{rank}.log" for rank in range(processes)]
    said = [log.read_text(errors="replace") if log.exists() else "" for log in logs]
    return [printed(one) for one in said], failed


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
