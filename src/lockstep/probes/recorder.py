"""Record one process: a line per event, and what the process is doing right now."""

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
from types import FrameType, ModuleType
from typing import Any, NamedTuple, NoReturn

from lockstep.probes.settings import Settings

SIGNAL = signal.SIGRTMIN + 7 if sys.platform == "linux" else signal.SIGUSR2
"""Asks a process for its stack. Scripts use USR1 and USR2 themselves, and this one hardly ever."""
FLUSH_EVERY = 200
"""Events kept before they are written. A rank also writes before it waits for other ranks."""
LEAVES = "destroy_process_group"
"""The last thing that a rank does. Torch may hang or abort in it while a DDP model is alive."""
NOW_BYTES = 1024
STOPPED = "stopped"
"""The file that a process leaves when it ends because it has recorded enough."""

_encoded = json.JSONEncoder(default=str).encode


class Batch(NamedTuple):
    """The origin of a batch."""

    loader: str
    number: int
    """How many batches of the pass came before."""
    size: int
    indices: list[int] | None
    """Indices of its samples in the data set; None if the data set has none."""


@dataclass(eq=False)
class LoaderPass:
    """A pass over a loader that is under way."""

    loader: str
    turn: int
    place: str
    streams: bool
    """Whether the data set is a stream, without indices."""
    count: int = 0
    """Batches given so far."""
    indices: int = 0
    """How many indices were recorded."""
    over: bool = False


@dataclass
class Window:
    """Everything that happened since the last step of an optimizer."""

    batches: int = 0
    """Batches of the loader that gave most: a step on two loaders at once is over one batch."""
    samples: int = 0
    wait: float = 0.0
    """Seconds spent waiting for data."""
    synced: Counter[int] = field(default_factory=Counter)
    """Forward passes of each wrapped model whose backward adds gradients over the ranks."""
    unsynced: Counter[int] = field(default_factory=Counter)
    backwards: int = 0
    factors: list[float | None] = field(default_factory=list)
    """The factor on the loss of each backward; None if the loss is a sum, divided elsewhere."""
    scale: float = 1.0
    """The factor that a GradScaler put on the gradients; 1 once it is divided out again."""
    reached: set[int] = field(default_factory=set)
    """Identities of the parameters that a backward pass reached, if DDP looks for unused ones."""
    by_loader: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)

    def left(self, loader: str) -> None:
        """Forget the batches of a loader that starts again, unless the model learned from them."""
        if not self.backwards:
            self.samples -= self.by_loader.pop(loader, 0) and self.sizes.pop(loader)
            self.batches = max(self.by_loader.values(), default=0)

    def took(self, loader: str, size: int, wait: float) -> None:
        """Count a batch."""
        self.by_loader[loader] += 1
        self.sizes[loader] += size
        self.batches = max(self.by_loader.values())
        self.samples, self.wait = self.samples + size, self.wait + wait


_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_HERE = Path(__file__).parent
_ours = [f"{folder}{os.sep}" for folder in (_HERE, _HERE.parent / "processes")]
"""Files and folders whose code `place` skips: the probes, modules installed with them, and what
starts the script."""


class Recorder:
    """Writes the events of this process. A forked child writes to another file than its parent."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank: int | None = None
        self.failed = False
        """Whether this process was started by another and ends with an error or sys.exit."""
        self.worker = False
        """Whether this process is a forked child, usually a data worker."""
        self.step = 0
        """Optimizer steps begun so far."""
        self.further = settings.further
        """Steps that the script may make beyond the number in the settings."""
        self.steps_of: dict[int, int] = {}
        """Steps of each optimizer, by its identity."""
        self.window = Window()
        self.losses: list[Any] = []
        """The tensors that the backward pass starts from, while `on_backward` is called."""
        self.on_loader: list[Callable[[Any], None]] = []
        """Called with every DataLoader, once it is made."""
        self.on_pass: list[Callable[[Any, LoaderPass], None]] = []
        """Called with the loader before a pass over it begins."""
        self.ends_pass: list[Callable[[LoaderPass], bool]] = []
        """Called before every batch. The pass ends if one of them returns True."""
        self.on_batch: list[Callable[[Any, Batch], Any]] = []
        """Called with every batch. Each returns the batch, or another in its place."""
        self.on_pass_end: list[Callable[[LoaderPass], None]] = []
        """Called when a pass has given its last batch."""
        self.on_backward: list[Callable[[], None]] = []
        """Called before every backward pass."""
        self.after_backward: list[Callable[[], None]] = []
        """Called after every backward pass."""
        self.on_optimizer: list[Callable[[Any], None]] = []
        """Called with every optimizer, once it is made."""
        self.on_step: list[Callable[[Any], None]] = []
        """Called with the optimizer before it steps; behind the backward pass of a closure."""
        self.on_stepped: list[Callable[[Any], None]] = []
        """Called with the optimizer after it has stepped."""
        self.on_end: list[Callable[[], None]] = []
        """Called when this process ends."""
        self._events: list[dict[str, Any]] = []
        self._texts: dict[str, bytes] = {}
        self._notes: int | None = None
        self._now: mmap.mmap | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)

    @property
    def looks(self) -> bool:
        """Whether to look at this step closely: 0, 1, 2, 4, 8 and so on, to keep the cost small."""
        return self.step & (self.step - 1) == 0

    def note(self, kind: str, **facts: Any) -> None:
        """Record an event."""
        self._events.append({"kind": kind, "at": time.time(), **facts})
        if len(self._events) >= FLUSH_EVERY or self.worker:
            self.flush()

    def now(self, doing: str) -> None:
        """Keep what this process is about to do, for the report if it never returns from it."""
        if self._now is None:
            place = self._open("now")
            os.ftruncate(place, NOW_BYTES)
            # Mapped memory is cheaper than a write, and this happens several times in every step.
            self._now = mmap.mmap(place, NOW_BYTES)
            os.close(place)
        text = self._texts.get(doing)
        if text is None:
            # The reader stops at the newline, and ignores the rest of a longer text before.
            text = doing.encode(errors="replace")[: NOW_BYTES - 1] + b"\n"
            self._texts[doing] = text
        self._now[: len(text)] = text

    def flush(self) -> None:
        """Write the events recorded so far."""
        if self._events:
            if self._notes is None:
                self._notes = self._open("jsonl")
            lines = "".join(f"{_encoded(event)}\n" for event in self._events)
            os.write(self._notes, lines.encode(errors="replace"))
            self._events.clear()

    def close(self) -> None:
        """Record the end of this process."""
        if not self.worker and (self._events or self._notes is not None):
            for listen in self.on_end:
                listen()
            self.note("exit")
            self.flush()
            # From here on torch is at work, not the script.
            self.now(f"{LEAVES} at the end")
            if self.rank is not None and parent_process() is not None and not self.failed:
                # If gloo aborted this rank now, the script that started it would see a failure.
                self._leave()

    def stop(self, why: str) -> NoReturn:
        """End this process because it has recorded enough."""
        for listen in self.on_end:
            listen()
        self.note("stopped", why=why)
        self.flush()
        Path(self.settings.folder, STOPPED).touch()
        # Not sys.exit: scripts catch it, and taking DDP down while other ranks wait can hang.
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
        """Mark this process as a worker of another one."""
        self.worker = True
        self.note("worker", rank=self.rank, parent=os.getppid())

    def is_rank(self, number: int) -> None:
        """Mark this process as a rank, even if it was forked."""
        self.rank = number
        if self.worker:
            self.worker = False
            dump_on_request(self.settings)
            # A forked child does not run the functions of atexit.
            Finalize(None, self.close, exitpriority=0)


def dump_on_request(settings: Settings) -> None:
    """Let this process write its stack when it receives SIGNAL."""
    stack = Path(settings.folder, f"{os.getpid()}.stack")
    # Open as long as the process lives. For a file object Python would warn of that.
    kept = os.open(stack, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    faulthandler.register(SIGNAL, file=kept, all_threads=True)


def place(depth: int = 1) -> str:
    """Return the line of the script that led here, as `path:line`.

    If no such code is on the stack, return the line of the library.
    """
    frame: FrameType | None = sys._getframe(depth)
    library = ""
    while frame is not None:
        path = frame.f_code.co_filename
        kind = kind_of(path)
        if kind == "script":
            return f"{path}:{frame.f_lineno}"
        if kind == "library" and not library:
            library = f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return library


_kinds: dict[str, str] = {}


def skip(module: ModuleType) -> None:
    """Let `place` skip the code of a module, and of the modules in it."""
    file = Path(str(module.__file__))
    _ours.append(str(file.parent) + os.sep if hasattr(module, "__path__") else str(file))
    _kinds.clear()


def is_ours(path: str) -> bool:
    """Whether a file belongs to the probes, or to a module installed with them."""
    return path.startswith(tuple(_ours))


def kind_of(path: str) -> str:
    """Return whose code a file holds: `script`, `library`, `torch` or `ours`."""
    if (known := _kinds.get(path)) is not None:
        return known
    if path.startswith("<") or is_ours(path):
        found = "ours"
    # pip may install for one user, or into a folder of PYTHONPATH.
    elif not (path.startswith(_LIBRARIES) or "/site-packages/" in path):
        found = "script"
    else:
        found = "torch" if "/torch/" in path else "library"
    _kinds[path] = found
    return found


def within_torch(depth: int = 1) -> bool:
    """Whether torch itself is calling, for example to write its cache of compiled code."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        path = frame.f_code.co_filename
        if not (path.startswith(("<", _STANDARD)) or is_ours(path)) or "-packages" in path:
            return "/torch/" in path or "/triton/" in path
        frame = frame.f_back
    return False
