"""Run a function on several replicas of this machine, forked from this process."""

from __future__ import annotations

import os
import pickle
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.errors import Interrupted, LockstepError, ReplicaDied
from lockstep.processes.fork import fork, one_thread, prepare
from lockstep.processes.signals import STOPS, DeferredSignals, describe_exit

PATIENCE = 60.0
"""How long replicas may take to exit after Ctrl-C, in seconds."""
GRACE = 3.0
"""How long the other replicas may take to exit after one has died, in seconds."""


class _Child(NamedTuple):
    rank: int
    pid: int
    pipe: int


class _Outcome(NamedTuple):
    """How a replica ended: with a result, with an error that it sent, or killed with neither."""

    result: Any
    error: BaseException | None
    trace: str
    status: int
    moment: float


def run_replicas(number: int, work: Callable[[int, str], Any]) -> Any:
    """Fork `number` replicas, run `work(rank, store)` in each, return what the first returned.

    If one replica fails, this function ends the others within seconds and raises the error of the
    one that failed. Ctrl-C lets the replicas finish in their own time; a second Ctrl-C kills them.
    """
    prepare()
    with one_thread(), tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        store = str(Path(folder) / "store")
        children: list[_Child] = []
        with DeferredSignals() as deferred:
            try:
                for rank in range(number):
                    children.append(_start(rank, work, store, deferred))
                outcomes, interrupted = _watch(children, deferred)
            finally:
                for child in children:
                    _kill(child.pid)
                    os.close(child.pipe)
    return _verdict(outcomes, interrupted)


def _start(
    rank: int, work: Callable[[int, str], Any], store: str, deferred: DeferredSignals
) -> _Child:
    reading, writing = os.pipe()

    def run() -> int:
        os.close(reading)
        message: tuple[Any, BaseException | None, str]
        try:
            message = (work(rank, store), None, "")
        except LockstepError as error:
            message = (None, error, "")
        except BaseException as error:
            # Send the words only: unpickling a user's exception may fail.
            words = RuntimeError(f"{type(error).__name__}: {error}")
            message = (None, words, traceback.format_exc())
        with os.fdopen(writing, "wb") as file:
            file.write(pickle.dumps(message))
        return 0 if message[1] is None else 1

    try:
        pid = fork(run, deferred)
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return _Child(rank, pid, reading)


def _watch(children: list[_Child], deferred: DeferredSignals) -> tuple[list[_Outcome], bool]:
    """Wait for all replicas; end them soon after the first failure. Return also: was there a
    Ctrl-C?
    """
    interrupts = 0
    deadline: float | None = None

    def interrupted(number: int, frame: Any) -> None:
        nonlocal interrupts, deadline
        interrupts += 1
        # Leave time for a step, an evaluation and a checkpoint. A replica that is stuck in a
        # kernel would never end.
        deadline = deadline or time.monotonic() + PATIENCE
        for child in children:
            _signal(child.pid, signal.SIGTERM if interrupts == 1 else signal.SIGKILL)

    deferred.release(dict.fromkeys(STOPS, interrupted))
    outcomes: dict[int, _Outcome] = {}
    received = {child.rank: b"" for child in children}
    while len(outcomes) < len(children):
        living = [child for child in children if child.rank not in outcomes]
        # Wait for the process, not for the end of its pipe: data workers may hold the pipe open.
        gone = [(c, s) for c in living for pid, s in [os.waitpid(c.pid, os.WNOHANG)] if pid]
        open_pipes = {c.pipe: c for c in living}
        ready, _, _ = select.select(list(open_pipes), [], [], 0 if gone else 0.02)
        for pipe in ready:
            received[open_pipes[pipe].rank] += os.read(pipe, 1 << 20)
        for child, status in gone:
            outcomes[child.rank] = _outcome(received[child.rank], status)
            if outcomes[child.rank].status != 0:
                deadline = min(deadline or float("inf"), time.monotonic() + GRACE)
        if deadline is not None and time.monotonic() > deadline:
            for child in living:
                _signal(child.pid, signal.SIGKILL)
    return [outcomes[child.rank] for child in children], interrupts > 0


def _outcome(content: bytes, status: int) -> _Outcome:
    try:
        result, error, trace = pickle.loads(content)
    except (EOFError, pickle.UnpicklingError):
        result, error, trace = None, None, ""  # killed before or while it sent its message
    return _Outcome(result, error, trace, os.waitstatus_to_exitcode(status), time.monotonic())


def _verdict(outcomes: list[_Outcome], interrupted: bool) -> Any:
    failed = [(rank, o) for rank, o in enumerate(outcomes) if o.status != 0]
    if not failed:
        return outcomes[0].result
    # Report the cause, not its echo: first our own errors, then a replica that was killed, and
    # last the replicas that lost their connection to it.
    for _, outcome in failed:
        if isinstance(outcome.error, LockstepError):
            raise outcome.error
    if interrupted:
        raise Interrupted("Stopped before a checkpoint could be written.")
    rank, outcome = min(failed, key=lambda item: item[1].moment)
    for other, candidate in failed:
        if candidate.error is None and candidate.moment <= outcome.moment + GRACE / 2:
            rank, outcome = other, candidate
            break
    if outcome.error is None:
        raise ReplicaDied(f"Replica {rank} {describe_exit(outcome.status)}.")
    raise ReplicaDied(f"Replica {rank} failed with {outcome.error}\n{outcome.trace}")


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill(pid: int) -> None:
    """Kill and reap a child, if it still exists."""
    with suppress(ChildProcessError, ProcessLookupError):
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
