"""The processes of one side: the bench starts them, gives each a turn, and ends them."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import NamedTuple

from lockstep.bench.turns import Report, Turn
from lockstep.processes.fork import end_group, fork
from lockstep.processes.signals import DeferredSignals, describe_exit

PATIENCE = 900.0
"""How long a side may stay silent, in seconds; compiling takes minutes."""

RunReplica = Callable[[int, Connection], None]
"""A function that runs one replica, given its rank and its end of the pipe, until it is killed."""


class Failure(NamedTuple):
    """Why a side ended by itself."""

    reason: str
    """One line."""
    trace: str = ""


class _Child(NamedTuple):
    pid: int
    pipe: Connection


class Crew:
    """The replicas of one side."""

    def __init__(self) -> None:
        self.children: list[_Child] = []

    def start(self, replicas: int, work: RunReplica, log: Path) -> list[Report] | Failure:
        """Fork the replicas and return their first reports. They print to the file `log`."""
        with DeferredSignals() as deferred:
            for rank in range(replicas):
                self.children.append(_fork(rank, work, log, deferred))
        return self.reports()

    def turn(self, turn: Turn) -> list[Report] | Failure:
        """Give all replicas a turn and return their reports."""
        for child in self.children:
            with suppress(BrokenPipeError):  # the replica has sent its failure already
                child.pipe.send(turn)
        return self.reports()

    def reports(self) -> list[Report] | Failure:
        """Wait until every replica has reported, or one has failed."""
        reports: dict[int, Report] = {}
        waiting = {child.pipe: rank for rank, child in enumerate(self.children)}
        while waiting:
            ready = wait(list(waiting), PATIENCE)
            if not ready:
                return Failure(f"gave no sign for {PATIENCE:.0f} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = waiting.pop(pipe)
                try:
                    message = pipe.recv()
                except (EOFError, ConnectionResetError):
                    return Failure(self._ending(rank))
                if isinstance(message, Failure):
                    return message
                reports[rank] = message
        return [reports[rank] for rank in sorted(reports)]

    def _ending(self, rank: int) -> str:
        """Describe how a replica ended that sent no failure."""
        child = self.children.pop(rank)
        child.pipe.close()
        end_group(child.pid)
        _, status = os.waitpid(child.pid, 0)
        return f"replica {rank} {describe_exit(os.waitstatus_to_exitcode(status))}"

    def end(self) -> None:
        """Kill all replicas and the processes that they have started.

        A side holds nothing worth saving, and leaving a group of replicas in good order takes
        seconds and may hang.
        """
        for child in self.children:
            end_group(child.pid)
        for child in self.children:
            os.waitpid(child.pid, 0)
            child.pipe.close()
        self.children.clear()


def _fork(rank: int, work: RunReplica, log: Path, deferred: DeferredSignals) -> _Child:
    ours, theirs = Pipe()

    def run() -> int:
        ours.close()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            work(rank, theirs)
            failure = Failure("ended by itself")
        except BaseException as error:
            first = (str(error).strip() or "no message").splitlines()[0]
            failure = Failure(f"{type(error).__name__}: {first}", traceback.format_exc())
        theirs.send(failure)
        return 1

    # A group of its own: Ctrl-C reaches the bench alone, and `end_group` all that a side starts.
    pid = fork(run, deferred, own_group=True)
    theirs.close()
    return _Child(pid, ours)
