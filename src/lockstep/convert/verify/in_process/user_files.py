"""Protect the user's files, and note which files the script writes.

Writing to a link in the scratch folder makes a copy first.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from lockstep.convert.verify.in_process.printed_output import Heard
from lockstep.convert.verify.in_process.training_state import Now
from lockstep.world import launched

MOST = 200
"""The most files, lines of a file and names in a file that are noted."""
LONGEST = 100_000
"""The most bytes of a text that is noted."""


def install(now: Now) -> None:
    """Patch open and torch.save."""
    written, root = Written(now), Path(f"{now.recorder.settings.folder}-scratch")
    open_file, save = builtins.open, torch.save

    @wraps(open_file)
    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(mode, str) and any(letter in mode for letter in "wax+"):
            _part(root, file, empty="w" in mode)
            written.add(file)
            rank, _, _ = launched() or (0, 1, 0)
            if file == os.devnull and rank > 0 and not isinstance(sys.stdout, _Silenced):
                # A converted program prints there in all processes but the first.
                return _Silenced(open_file(file, mode, *args, **kwargs), now)
        return open_file(file, mode, *args, **kwargs)

    @wraps(save)
    def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        _part(root, f, empty=True)
        written.add(f, sorted(_names(obj))[:MOST])
        return save(obj, f, *args, **kwargs)

    load = torch.load

    @wraps(load)
    def loaded(*args: Any, **kwargs: Any) -> Any:
        now.recorder.note("loads", step=now.most_steps)
        return load(*args, **kwargs)

    torch.load = loaded
    make = os.mkdir

    @wraps(make)
    def made(path: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(path, str | os.PathLike):
            _own(root, Path(os.path.abspath(os.fsdecode(path))).parent)
        make(path, *args, **kwargs)

    os.mkdir = made
    builtins.open = io.open = opened
    torch.save = saved
    now.recorder.on_end.append(written.note)


class _Silenced(Heard):
    """What may replace standard output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


class Written:
    """The files of the scratch folder that this process has written."""

    def __init__(self, now: Now) -> None:
        self.now, self.home = now, Path.cwd().resolve()
        self.names: dict[str, list[str]] = {}

    def add(self, file: Any, names: list[str] | None = None) -> None:
        """Remember a file, and the names in it."""
        if self.now.recorder.worker or not isinstance(file, str | os.PathLike):
            return
        path = os.path.realpath(os.fsdecode(file))
        if path.startswith(f"{self.home}{os.sep}") and len(self.names) < MOST:
            self.names[path] = names or self.names.get(path, [])

    def note(self) -> None:
        """Note what is in the files, when this process ends."""
        for path, names in self.names.items():
            with suppress(OSError):
                lines = _lines(path) if not names else []
                inner = os.path.relpath(path, self.home)
                self.now.recorder.note("file", path=inner, names=names, lines=lines)
        self.names = {}


def _names(value: Any, before: str = "", depth: int = 4) -> Iterator[str]:
    """Yield the names of everything in a checkpoint."""
    if isinstance(value, nn.Module):
        yield f"{before}{type(value).__name__}"
        value = value.state_dict()
    if isinstance(value, Mapping) and depth:
        for name, inner in value.items():
            yield f"{before}{name}"
            yield from _names(inner, f"{before}{name}.", depth - 1)


def _lines(path: str) -> list[str]:
    """Return the lines of a text; nothing for other files."""
    content = Path(path).read_bytes()[:LONGEST]
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return []
    return [line[:1000] for line in text.splitlines()[:MOST]]


def _own(root: Path, folder: Path) -> None:
    """Make folders of this run out of links to folders, as a file inside will be written."""
    if not folder.is_relative_to(root):
        return
    for parent in (*reversed(folder.parents), folder):
        # Not Path.is_symlink, which asks as the script might: that is watched.
        if os.path.islink(parent) and parent.is_relative_to(root):
            source = Path(os.path.realpath(parent))
            # Another rank may do the same at the same time.
            with suppress(FileNotFoundError, FileExistsError):
                parent.unlink()
                parent.mkdir()
                for entry in source.iterdir():
                    (parent / entry.name).symlink_to(entry, entry.is_dir())


def _part(root: Path, file: Any, *, empty: bool) -> None:
    """Replace a link by a copy, or by an empty file if all content will be new."""
    if not isinstance(file, str | os.PathLike):
        return
    path = Path(os.path.abspath(os.fsdecode(file)))
    _own(root, path.parent)
    if not os.path.islink(path):
        return
    # Another rank may do the same at the same time.
    with suppress(FileNotFoundError):
        content = b"" if empty else path.read_bytes()
        path.unlink()
        path.write_bytes(content)
