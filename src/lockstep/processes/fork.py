"""Fork one child of this process.

A fork copies the calling thread alone. Fork only from a process that runs no other threads and has
not used a GPU: a lock that another thread holds stays locked in the child for ever.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lockstep.processes.lazy_dynamo import put_off_dynamo
from lockstep.processes.signals import DeferredSignals
from lockstep.world import die_with


def prepare() -> None:
    """Import what replicas need, without starting threads: importing takes seconds per process."""
    with no_garbage_collection():
        put_off_dynamo()
        import torch
        import torch.distributed
        import torch.fx.experimental.symbolic_shapes  # backward imports it when it gets a weight
        import torch.nn.parallel.distributed  # noqa: F401


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch start no threads in the body: they would be missing in a fork of this process."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Import large packages faster: they create many objects and hardly any garbage."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def fork(run: Callable[[], int], deferred: DeferredSignals, *, own_group: bool = False) -> int:
    """Fork a child that calls `run` and exits with its result; return the child's id.

    The child dies with this process. It ignores Ctrl-C, which reaches the whole group: the parent
    decides what Ctrl-C means. With `own_group` the child leads a process group, so that
    `end_group` also reaches what the child starts.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        if own_group:
            _lead_group(pid)
        return pid
    code = 1
    try:
        die_with(parent)
        # The collector need not look at, and so copy, what the child shares with its parent.
        gc.freeze()
        if own_group:
            _lead_group(0)
        deferred.release({signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: signal.SIG_DFL})
        code = run()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Skip the interpreter's shutdown: it takes a second, may hang on a backend's threads, and
        # would run the parent's atexit handlers, which delete the parent's temporary folders.
        os._exit(code)


def _lead_group(pid: int) -> None:
    # Parent and child both ask for the group, because either may be the first to need it.
    with suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)


def end_group(pid: int) -> None:
    """Kill a process that leads a group, with everything in that group."""
    with suppress(ProcessLookupError, PermissionError):  # macOS raises the latter for a zombie
        os.killpg(pid, signal.SIGKILL)
