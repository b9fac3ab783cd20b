"""Run a program on one process or several without probes, and read the numbers that it prints.

The processes are forked from one that has imported torch, which saves seconds for each.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from lockstep.errors import ReplicaDied
from lockstep.labs.lab2_ddp.files import write_digits
from lockstep.processes.ports import free_port
from lockstep.processes.replicas import run_replicas
from lockstep.world import World, announce

SCRIPT = "train.py"
LIMIT = 60
"""The time limit of one run, in seconds."""
_ACCURACY = re.compile(r"acc\w*\W*?(\d*\.?\d+)\s*(%?)", re.I)
_RATE = re.compile(r"(\d*\.?\d+) images/s")
_IMAGES = re.compile(r"(\d+) images(?!/)")


def run(
    folder: Path, files: dict[str, str], processes: int, arguments: tuple[str, ...]
) -> tuple[list[Printed], str]:
    """Run a program, and return what each process printed and why the run failed, if it did.

    `files` holds the texts of its files by name; the program itself is `SCRIPT`.
    """
    # Import here: only this process, which forks, needs torch.
    from lockstep.engine.group import disable_leaving

    folder.mkdir()
    folder = folder.resolve()
    for name, text in files.items():
        folder.joinpath(name).write_text(text)
    write_digits(folder)
    port = free_port()

    def work(rank: int, store: str) -> None:
        # The default action ends the process, and with it the processes that wait for it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LIMIT)
        os.chdir(folder)
        output = os.open(f"{rank}.log", os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if processes > 1:
            announce(World(rank=rank, size=processes, local_rank=rank), port)
        # The end of the process is not measured, and must not hang.
        disable_leaving()
        sys.argv = [SCRIPT, *arguments]
        sys.path.insert(0, str(folder))
        runpy.run_path(SCRIPT, run_name="__main__")

    failed = ""
    try:
        run_replicas(processes, work)
    except ReplicaDied as error:
        failed = str(error).splitlines()[0]
        if signal.SIGALRM.name in failed:
            failed = f"It took longer than {LIMIT} seconds, so the lab stopped it."
    logs = [folder / f"{rank}.log" for rank in range(processes)]
    said = [log.read_text(errors="replace") if log.exists() else "" for log in logs]
    return [printed(one) for one in said], failed


class Printed(NamedTuple):
    """The numbers of all epochs."""

    images: list[int]
    rates: list[float]
    """Images per second."""
    accuracies: list[float]
    digits: int
    """The digits of an accuracy after the point."""


def printed(text: str) -> Printed:
    """Read the lines of one process.

    >>> printed("epoch 0: 128 images, 3100 images/s, accuracy 0.4400")
    Printed(images=[128], rates=[3100.0], accuracies=[0.44], digits=4)
    """
    accuracies = _ACCURACY.findall(text)
    number, percent = accuracies[-1] if accuracies else ("", "")
    return Printed(
        images=[int(found) for found in _IMAGES.findall(text)],
        rates=[float(found) for found in _RATE.findall(text)],
        accuracies=[float(value) / (100 if sign else 1) for value, sign in accuracies],
        digits=len(number.partition(".")[2]) + 2 * bool(percent),
    )
