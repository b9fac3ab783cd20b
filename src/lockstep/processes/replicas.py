"""Replicas on this machine: forked from a process that has imported torch once.

Forking saves each replica the seconds that importing takes. It asks that this process starts no
threads and touches no GPU before.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.errors import Interrupted, LockstepError, ReplicaDied
from lockstep.processes.signals import STOPS, Held
from lockstep.world import die_with

PATIENCE = 60.0
"""Seconds that replicas have to end by themselves after Ctrl-C."""
GRACE = 3.0
"""Seconds that the others have to end by themselves after one replica has died."""


class _Child(NamedTuple):
    rank: int
    pid: int
    pipe: int


class _Outcome(NamedTuple):
    """How a replica ended: a result, an error it reported, or neither (killed)."""

    result: Any
    error: BaseException | None
    trace: str
    status: int
    moment: float


def run_replicas(number: int, work: Callable[[int, str], Any]) -> Any:
    """Fork `number` replicas, run `work(rank, store)` in each, return what the first returned.

    If one fails, the others end within seconds and its error is raised here. Ctrl-C is passed on
    to the replicas, which end in their own time; a second one ends them at once.
    """
    prepare()
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        store = str(Path(folder) / "store")
        sys.stdout.flush()
        sys.stderr.flush()
        children: list[_Child] = []
        with Held() as held:
            try:
                for rank in range(number):
                    children.append(_fork(rank, work, store, held))
                outcomes, interrupted = _watch(children, held)
            finally:
                for child in children:
                    _kill(child.pid)
                    os.close(child.pipe)
    return _verdict(outcomes, interrupted)


def prepare() -> None:
    """Import what every replica needs, without starting threads."""
    import torch
    import torch._dynamo  # the first optimizer imports it: a second per process
    import torch.distributed

    torch.set_num_threads(1)


def _fork(rank: int, work: Callable[[int, str], Any], store: str, held: Held) -> _Child:
    reading, writing = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid:
        os.close(writing)
        return _Child(rank, pid, reading)
    os.close(reading)
    code = 1
    try:
        die_with(parent)
        # Ctrl-C reaches the whole group of processes: the parent decides what it means.
        held.release({signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL})
        try:
            message: tuple[Any, BaseException | None, str] = (work(rank, store), None, "")
            code = 0
        except LockstepError as error:
            message = (None, error, "")
        except BaseException as error:
            # Only its words: the user's exceptions may not survive the way.
            told = RuntimeError(f"{type(error).__name__}: {error}")
            message = (None, told, traceback.format_exc())
        _send(writing, message)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # No interpreter shutdown: it takes a second and may hang on a backend's threads.
        os._exit(code)


def _send(pipe: int, message: tuple[Any, BaseException | None, str]) -> None:
    with os.fdopen(pipe, "wb") as file:
        file.write(pickle.dumps(message))


def _watch(children: list[_Child], held: Held) -> tuple[list[_Outcome], bool]:
    """Wait for all; end the rest soon after the first failure. Also: was there a Ctrl-C?"""
    interrupts = 0
    deadline: float | None = None

    def interrupted(number: int, frame: Any) -> None:
        nonlocal interrupts, deadline
        interrupts += 1
        # Time for the step, an evaluation and a checkpoint; a replica stuck in a kernel never ends.
        deadline = deadline or time.monotonic() + PATIENCE
        for child in children:
            _signal(child.pid, signal.SIGTERM if interrupts == 1 else signal.SIGKILL)

    held.release(dict.fromkeys(STOPS, interrupted))
    outcomes: dict[int, _Outcome] = {}
    received = {child.rank: b"" for child in children}
    while len(outcomes) < len(children):
        living = [child for child in children if child.rank not in outcomes]
        # Not the pipe's end but the process's: data workers may hold the pipe open.
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
        result, error, trace = None, None, ""  # killed before it could say anything, or meanwhile
    return _Outcome(result, error, trace, os.waitstatus_to_exitcode(status), time.monotonic())


def _verdict(outcomes: list[_Outcome], interrupted: bool) -> Any:
    failed = [(rank, o) for rank, o in enumerate(outcomes) if o.status != 0]
    if not failed:
        return outcomes[0].result
    # The cause, not its echo: our own errors first, then a replica that was killed, and last those
    # that lost their connection to it.
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
        raise ReplicaDied(f"Replica {rank} {_ending(outcome.status)}.")
    raise ReplicaDied(f"Replica {rank} failed with {outcome.error}\n{outcome.trace}")


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status} and no message"
    name = signal.Signals(-status).name
    hint = " (out of memory is the usual reason)" if name == "SIGKILL" else ""
    return f"was killed by signal {-status}, {name}{hint}"


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _kill(pid: int) -> None:
    """End and collect a child, if it is still there."""
    try:
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    except (ChildProcessError, ProcessLookupError):
        return
