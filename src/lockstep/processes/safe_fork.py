"""Find out whether this process can fork replicas safely."""

from __future__ import annotations

import os
import signal
import threading
import time

PROBE_SECONDS = 5.0
"""How long a probe may compute before it counts as stuck; it needs milliseconds."""


def reason_not_to_fork(threads: int = 1) -> str | None:
    """Return why replicas with `threads` CPU threads cannot be forked from here, or None."""
    import torch

    if torch.cuda.is_initialized():
        return "this process has used a GPU, which a forked process cannot use again"
    others = [t.name for t in threading.enumerate() if t is not threading.current_thread()]
    if others:
        return (
            f"this process runs other threads ({', '.join(sorted(others))}), which may hold locks"
        )
    if threads > 1 and _is_stuck(threads):
        return (
            "this process has computed with several threads, and GNU OpenMP cannot start its "
            "threads again in a forked process"
        )
    return None


def _is_stuck(threads: int) -> bool:
    """Return whether a forked process hangs when torch computes with several threads.

    OpenMP does not tell whether its threads have been started, so a child process tries.
    """
    import torch

    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(threads)
            torch.ones(1 << 20).exp()
        finally:
            os._exit(0)
    deadline = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True
