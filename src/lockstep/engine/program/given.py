"""The decisions of `lockstep train FILE` for the loop of a program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.console import Console, Progress
from lockstep.world import World


@dataclass(frozen=True, kw_only=True)
class Given:
    """The place of a replica, and the flags of the command; None stands for a flag not given."""

    world: World
    store: str | None = None
    """The file through which the replicas meet; None under a launcher."""
    console: Console = field(default_factory=Console)
    out: Path | None = None
    """The folder of the run."""
    resume: bool = False
    share_gpu: bool = False
    detail: int | None = None
    """A step whose hashes are written to details.json, for an audit."""
    recipe: dict[str, Any] | None = None
    """The recipe that the loop trains, in words and numbers; None for a program."""
    source: dict[str, Any] | None = None
    """How that recipe was named; None if it was an object of a program."""
    progress: Progress | None = None
    """Shows the progress; default: the console does."""
    flags: dict[str, Any] = field(default_factory=dict)
    """Arguments of `Loop` that the command replaces."""
    apart: bool = False
    """Whether each loop of the process gets a folder of its own in `out`: 0, 1 and so on."""
    number: int = 0
    """Loops of the program before this one."""
    passed: bool = False
    """Whether a later loop has begun: a resumed program goes through a finished one once more."""


_current: list[Given] = []
_loops: list[int] = [0]
"""How many loops have asked since `give`."""


def give(given: Given | None) -> None:
    """Decide these things for the loops of this process; None forgets them."""
    _loops[0] = 0
    _current[:] = [] if given is None else [given]


def taken() -> Given | None:
    """Return what was decided for the next loop of this process, if anything."""
    given = _current[0] if _current else None
    if given is None or given.out is None:
        return given
    base = given.out
    number = _loops[0]
    _loops[0] += 1
    if given.apart:
        return replace(given, out=base / str(number))
    later = (folder_of(base, number + 1) / "run.json").exists()
    given = replace(given, passed=given.resume and later)
    if number == 0:
        return given
    out = folder_of(base, number)
    # The replicas meet again for each loop.
    store = given.store and f"{given.store}-{number}"
    resume = given.resume and (out / "run.json").exists()
    return replace(given, number=number, out=out, store=store, resume=resume)


def folder_of(out: Path, number: int) -> Path:
    """Return the folder of a program's loop: `out` for the first, `out/loop-2` for the second."""
    return out if number == 0 else out / f"loop-{number + 1}"
