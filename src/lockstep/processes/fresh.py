"""Start Python in a new interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import IO, Any, Protocol

from lockstep.world import die_with, fix_hashes

File = int | IO[Any]
"""A file descriptor, a file, or one of subprocess's constants such as DEVNULL."""


class Process(Protocol):
    """A process that was started, fresh or forked. It leads a process group, without a terminal."""

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group."""

    def poll(self) -> int | None:
        """Return the exit code, negative if a signal killed it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code; raise subprocess.TimeoutExpired."""


def start_fresh(
    command: Sequence[str],
    *,
    env: dict[str, str],
    stdin: File = subprocess.DEVNULL,
    output: File | None,
    cwd: Path | str | None = None,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `python *command`, which dies with this process if the main thread calls.

    `output` takes what the process prints, errors too; with None it prints where this process
    does. `keep` names file descriptors that the process inherits under their numbers.
    """
    return subprocess.Popen(
        [sys.executable, *command],
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        pass_fds=keep,
        # Without a terminal: what the process starts cannot read from, or write to, the user's.
        start_new_session=True,
        # The kernel counts the thread that starts a process as its parent: from another thread
        # the process would die when that thread ends.
        preexec_fn=partial(die_with, os.getpid()) if current_thread() is main_thread() else None,
    )


def begin_again_with_fixed_hashes() -> None:
    """Start this command again with a fixed order of sets of strings, unless it is fixed already.

    Python orders them differently in every process, so a program that builds its vocabulary from a
    set would train differently every time.
    """
    arguments = sys.orig_argv
    # Not inside another program that has called the command as a function.
    is_command = len(sys.argv) > 1 and arguments[-len(sys.argv) + 1 :] == sys.argv[1:]
    if is_command and fix_hashes():
        os.execv(sys.executable, [sys.executable, *arguments[1:]])
