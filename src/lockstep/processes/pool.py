"""Share work among processes forked from this one, without torch."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

_work: Callable[[int], Any] | None = None


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parts(work: Callable[[int], Any], parts: int) -> list[Any]:
    """Return `work(0)` to `work(parts - 1)`, each from a process of its own.

    The processes inherit everything that this one has in memory; only results are sent.
    """
    global _work
    if parts < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [work(part) for part in range(parts)]
    _work = work
    try:
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(parts, mp_context=context) as pool:
            return list(pool.map(_part, range(parts)))
    except BrokenProcessPool:
        # Somebody ended a process: do its work here.
        return [work(part) for part in range(parts)]
    finally:
        _work = None


def _part(number: int) -> Any:
    assert _work is not None
    return _work(number)
