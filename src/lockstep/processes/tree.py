"""Finding and ending processes, also those that have left their group or their session."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ROUNDS = 100
"""Looks for processes that were started while others were being ended."""


def below(root: int) -> set[int]:
    """Return a process and all processes that it started, directly or through others."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, open_ = {root}, [root]
    while open_:
        new = [pid for pid in children.get(open_.pop(), ()) if pid not in found]
        found.update(new)
        open_ += new
    return found


def marked(mark: str) -> set[int]:
    """Return all processes that were started with this word in their environment."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in environ.read_bytes():
                found.add(int(environ.parent.name))
    return found - {os.getpid()}


def alive(pids: Iterable[int]) -> list[tuple[int, str]]:
    """Return the processes that still run, with their command lines."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2][1] != "Z":
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                found.append((pid, words.decode(errors="replace").strip()[:80] or "?"))
    return found


def waits(pids: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Return how long each process had a CPU and how long it waited for one, in nanoseconds."""
    found = {}
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            ran, waited = Path(f"/proc/{pid}/schedstat").read_text().split()[:2]
            found[pid] = int(ran), int(waited)
    return found


def end_all(root: int, mark: str) -> int:
    """End a process, all below it and all that carry the mark; return how many there were."""
    ended: set[int] = set()
    for _ in range(ROUNDS):
        found = {pid for pid, _ in alive(below(root) | marked(mark))}
        if not found:
            break
        # First they stop, all of them: one that still runs could start another meanwhile.
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, how)
        ended |= found
        time.sleep(0.01)
    return len(ended)
