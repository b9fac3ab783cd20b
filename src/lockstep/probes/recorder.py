"""Notes of one process: a line per event, and where it is right now."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import mmap
import os
import signal
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from lockstep.probes.settings import Settings

SIGNAL = signal.SIGRTMIN + 7 if sys.platform == "linux" else signal.SIGUSR2
"""Asks a process for its stack. Nobody else uses it: scripts like USR1 and USR2 for themselves."""
FLUSH_EVERY = 200
"""Events. Before a rank waits for others it writes in any case: it may not come back."""
LEAVES = "destroy_process_group"
"""What a rank does last: torch may hang or abort in it, if a DDP model is still alive."""
NOW_BYTES = 1024
STOPPED = "stopped"
"""A file that says that a process was ended because enough was seen."""


_encoded = json.JSONEncoder(default=str).encode


class Batch(NamedTuple):
    """Where a batch comes from."""

    loader: str
    number: int
    """Batches of the pass before it."""
    size: int
    indices: list[int] | None
    """Of its samples in the data set, if they have any."""


@dataclass
class Window:
    """What happened since the last step of an optimizer."""

    batches: int = 0
    """Of the loader that gave most: a step on two loaders at once is over one batch."""
    samples: int = 0
    wait: float = 0.0
    """Seconds spent waiting for data."""
    synced: Counter[int] = field(default_factory=Counter)
    """Forward passes of each wrapped model whose backward adds gradients over the ranks."""
    unsynced: Counter[int] = field(default_factory=Counter)
    backwards: int = 0
    factors: list[float | None] = field(default_factory=list)
    """What the loss of each backward was multiplied by; None: it is a sum, divided elsewhere."""
    scale: float = 1.0
    """What a GradScaler has multiplied the loss by, as long as the gradients still are."""
    reached: set[int] = field(default_factory=set)
    """Parameters that a backward pass came to, by identity, where DDP looks for others."""
    by_loader: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)

    def left(self, loader: str) -> None:
        """A pass that begins anew: what came before, and was not learned from, was a look."""
        if not self.backwards:
            self.samples -= self.by_loader.pop(loader, 0) and self.sizes.pop(loader)
            self.batches = max(self.by_loader.values(), default=0)

    def took(self, loader: str, size: int, wait: float) -> None:
        """A batch."""
        self.by_loader[loader] += 1
        self.sizes[loader] += size
        self.batches = max(self.by_loader.values())
        self.samples, self.wait = self.samples + size, self.wait + wait


_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_OURS = tuple(
    str(Path(__file__).parents[1] / name) + os.sep for name in ("probes", "convert/verify")
)


class Recorder:
    """Writes what the probes see. Forked children write to files of their own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank: int | None = None
        self.failed = False
        """Whether this process, started by another, ends by an error or by sys.exit."""
        self.worker = False
        """Whether this process is a forked child: a data worker, most often."""
        self.step = 0
        """Optimizer steps that were begun."""
        self.steps_of: dict[int, int] = {}
        """The same for each optimizer, by its identity."""
        self.window = Window()
        self.on_batch: list[Callable[[Any, Batch], Any]] = []
        """Called with every batch; they return it, or another."""
        self.on_backward: list[Callable[[], None]] = []
        self.on_step: list[Callable[[Any], None]] = []
        """Called with the optimizer, before it steps."""
        self.on_end: list[Callable[[], None]] = []
        self._events: list[dict[str, Any]] = []
        self._texts: dict[str, bytes] = {}
        self._notes: int | None = None
        self._now: mmap.mmap | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)

    @property
    def looks(self) -> bool:
        """Whether this step is looked at closely: 0, 1, 2, 4, 8 ...: few steps pay for it."""
        return self.step & (self.step - 1) == 0

    def note(self, kind: str, **facts: Any) -> None:
        """An event."""
        self._events.append({"kind": kind, "at": time.time(), **facts})
        if len(self._events) >= FLUSH_EVERY or self.worker:
            self.flush()

    def now(self, doing: str) -> None:
        """What this process is about to do: told of it if it never comes back."""
        if self._now is None:
            place = self._open("now")
            os.ftruncate(place, NOW_BYTES)
            # Memory, not a file that is written: it is said several times in every step.
            self._now = mmap.mmap(place, NOW_BYTES)
            os.close(place)
        text = self._texts.get(doing)
        if text is None:
            # What is left of a longer text comes after the end of the line.
            text = doing.encode(errors="replace")[: NOW_BYTES - 1] + b"\n"
            self._texts[doing] = text
        self._now[: len(text)] = text

    def flush(self) -> None:
        """Write what was noted."""
        if self._events:
            if self._notes is None:
                self._notes = self._open("jsonl")
            lines = "".join(f"{_encoded(event)}\n" for event in self._events)
            os.write(self._notes, lines.encode(errors="replace"))
            self._events.clear()

    def close(self) -> None:
        """The process ends."""
        if not self.worker and (self._events or self._notes is not None):
            for listen in self.on_end:
                listen()
            self.note("exit")
            self.flush()
            # What happens from here on is torch's, not the script's.
            self.now(f"{LEAVES} at the end")
            if self.rank is not None and parent_process() is not None and not self.failed:
                # The script that started this rank would be told if gloo aborts it now.
                self._leave()

    def stop(self, why: str) -> NoReturn:
        """End this process: enough was seen."""
        for listen in self.on_end:
            listen()
        self.note("stopped", why=why)
        self.flush()
        Path(self.settings.folder, STOPPED).touch()
        # Not sys.exit: scripts catch it, and to take DDP down while others wait can hang.
        self._leave()

    def _leave(self) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)

    def _open(self, suffix: str) -> int:
        path = Path(self.settings.folder, f"{os.getpid()}.{suffix}")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND * (suffix == "jsonl"), 0o644)

    def _forked(self) -> None:
        self._events, self._notes, self._now = [], None, None
        self.is_worker()

    def is_worker(self) -> None:
        """This process works for another one."""
        self.worker = True
        self.note("worker", rank=self.rank, parent=os.getppid())

    def is_rank(self, number: int) -> None:
        """This process is a rank, also if it was forked."""
        self.rank = number
        if self.worker:
            self.worker = False
            dump_on_request(self.settings)
            # A forked child ends without what atexit would do.
            Finalize(None, self.close, exitpriority=0)


def dump_on_request(settings: Settings) -> None:
    """Have this process write its stack when it is asked for it."""
    stack = Path(settings.folder, f"{os.getpid()}.stack")
    # Kept open as long as the process lives, which a file object would be warned of.
    kept = os.open(stack, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    faulthandler.register(SIGNAL, file=kept, all_threads=True)


def place(depth: int = 1) -> str:
    """The line of the user's code that led here, as `path:line`.

    Code of libraries stands for itself only if nobody else called it.
    """
    frame: FrameType | None = sys._getframe(depth)
    library = ""
    while frame is not None:
        path = frame.f_code.co_filename
        kind = _kinds.get(path) or kind_of(path)
        if kind == "script":
            return f"{path}:{frame.f_lineno}"
        if kind == "library" and not library:
            library = f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return library


_kinds: dict[str, str] = {}


def kind_of(path: str) -> str:
    """Whose code a file is: the script's, a library's, or none that a person would look at."""
    if path.startswith(("<", *_OURS)):
        found = "ours"
    # pip may install for one user, or into a folder of PYTHONPATH.
    elif not (path.startswith(_LIBRARIES) or "/site-packages/" in path):
        found = "script"
    else:
        found = "torch" if "/torch/" in path else "library"
    _kinds[path] = found
    return found


def within_torch(depth: int = 1) -> bool:
    """Whether torch itself does this: its caches of compiled code are no files of the script's."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(("<", *_OURS, _STANDARD)) or "-packages" in path:
            return "/torch/" in path or "/triton/" in path
        frame = frame.f_back
    return False
