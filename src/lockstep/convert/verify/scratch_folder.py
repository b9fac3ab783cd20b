"""Make a folder where a script finds its files and cannot change those of the user."""

from __future__ import annotations

import shutil
from pathlib import Path

SMALL = 8_000_000
"""The largest file or folder, in bytes, that is copied; larger ones are linked."""
FEW = 500
"""The most files of a folder that is copied."""
LEFT_OUT = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


def furnish(scratch: Path, home: Path, working: Path) -> Path:
    """Fill `scratch` with the files of `working` and `home`; return the home inside it.

    `home` is the folder whose modules and data a script expects beside itself. If the script is
    started from a folder above its home, its home lies as deep in the scratch folder.
    """
    inner = home.relative_to(working) if home.is_relative_to(working) else Path()
    place = scratch
    _fill(scratch, working, apart=inner.parts[0] if inner.parts else "")
    for depth, part in enumerate(inner.parts):
        place = place / part
        place.mkdir()
        last = depth + 1 == len(inner.parts)
        source = working.joinpath(*inner.parts[: depth + 1])
        _fill(place, source, apart="" if last else inner.parts[depth + 1])
    if not inner.parts and home != working:
        _fill(place, home)
    return place


def _fill(target: Path, source: Path, apart: str = "") -> None:
    for entry in sorted(source.iterdir()):
        new = target / entry.name
        if entry.name in LEFT_OUT or entry.name == apart or new.exists():
            continue
        if not _small(entry):
            new.symlink_to(entry.resolve(), target_is_directory=entry.is_dir())
        elif entry.is_dir():
            shutil.copytree(entry, new, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        else:
            shutil.copyfile(entry, new)


def _small(entry: Path) -> bool:
    if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
        return False
    room, count = SMALL, FEW
    for path in entry.rglob("*") if entry.is_dir() else (entry,):
        count -= 1
        room -= path.lstat().st_size
        if room < 0 or count < 0 or not (path.is_file() or path.is_dir()):
            return False
    return True
