"""The processes of one side, seen from the bench: started once, told when to run, ended."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import NamedTuple, NoReturn

from lockstep.bench.turns import Report, Turn
from lockstep.processes.signals import STOPS, Held
from lockstep.world import die_with

PATIENCE = 900.0
"""Seconds without a word after which a side counts as stuck; compiling takes minutes."""

Work = Callable[[int, Connection], None]
"""Runs one replica, given its rank and its end of the pipe; never returns by itself."""


class Failure(NamedTuple):
    """Why a side ended before it was told to."""

    reason: str
    """In one line."""
    trace: str = ""


class _Child(NamedTuple):
    pid: int
    pipe: Connection


class Crew:
    """All replicas of one side."""

    def __init__(self) -> None:
        self.children: list[_Child] = []

    def start(self, replicas: int, work: Work, log: Path) -> list[Report] | Failure:
        """Fork the replicas; their first report. Whatever they print goes to the file `log`."""
        sys.stdout.flush()
        sys.stderr.flush()
        with Held() as held:
            for rank in range(replicas):
                self.children.append(_fork(rank, work, log, held))
        return self.reports()

    def turn(self, turn: Turn) -> list[Report] | Failure:
        """Have all replicas take a turn; what each of them reports."""
        for child in self.children:
            with suppress(BrokenPipeError):  # it has failed, and said so
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
        """How a replica ended that could not say it."""
        child = self.children.pop(rank)
        child.pipe.close()
        _kill(child.pid)
        _, status = os.waitpid(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return f"replica {rank} ended with exit code {code} and no message"
        hint = " (out of memory is the usual reason)" if -code == signal.SIGKILL else ""
        return f"replica {rank} was killed by signal {-code}, {signal.Signals(-code).name}{hint}"

    def end(self) -> None:
        """End all replicas, and what they have started.

        By force: a side holds nothing worth saving, and leaving a group of replicas in good order
        takes seconds and may hang.
        """
        for child in self.children:
            _kill(child.pid)
        for child in self.children:
            os.waitpid(child.pid, 0)
            child.pipe.close()
        self.children.clear()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a zombie
        os.killpg(pid, signal.SIGKILL)


def _fork(rank: int, work: Work, log: Path, held: Held) -> _Child:
    ours, theirs = Pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        ours.close()
        _run(rank, work, log, theirs, parent, held)
    theirs.close()
    _own_group(pid)
    return _Child(pid, ours)


def _own_group(pid: int) -> None:
    # A group of its own: Ctrl-C reaches the bench alone, and a kill reaches all that a side
    # starts. Parent and child both ask for it, because either may be the first to need it.
    with suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)


def _run(rank: int, work: Work, log: Path, pipe: Connection, parent: int, held: Held) -> NoReturn:
    try:
        die_with(parent)
        _own_group(os.getpid())
        held.release({signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL})
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            work(rank, pipe)
            failure = Failure("ended by itself")
        except BaseException as error:
            first = (str(error).strip() or "no message").splitlines()[0]
            failure = Failure(f"{type(error).__name__}: {first}", traceback.format_exc())
        pipe.send(failure)
    finally:
        os._exit(1)


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C and SIGTERM become KeyboardInterrupt, so that all sides are ended on the way out."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    handlers = {n: signal.signal(n, stop) for n in STOPS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
