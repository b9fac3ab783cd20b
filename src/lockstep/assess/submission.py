"""A learner's folder: what of it is graded, and that it stays as it was."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import AssessError

PROGRAM = "train.py"
OURS = ("task.json", "history.jsonl", "data.npz", "progress.json")
"""Files of the folder that are no part of a program."""
SKIPPED = {"__pycache__", "venv", "node_modules", "out", "runs"}
MOST_FILES, MOST_BYTES = 2000, 50_000_000
KEPT = ".before-grading"
"""Is added to the name of a file that a program changed while it was graded."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The files of a program, read once."""

    folder: Path
    files: dict[str, bytes]
    """By their paths in the folder."""
    left_out: tuple[str, ...] = ()
    """Links that lead out of the folder."""

    def copy_to(self, place: Path) -> None:
        """Into a folder of its own, to be run there."""
        for name, content in self.files.items():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def mend(self) -> list[str]:
        """What was done to the folder meanwhile. What is gone comes back, nothing is overwritten.

        A person may have edited a file in this time as well as the program: it stays as it is, and
        beside it lies what it was.
        """
        said = []
        for name, content in self.files.items():
            path = self.folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                said.append(f"{name} was deleted, and is there again")
            elif path.is_dir() or path.read_bytes() != content:
                kept = path.with_name(path.name + KEPT)
                kept.write_bytes(content)
                said.append(f"{name} was changed; as it was before: {kept.name}")
        return said


def read(folder: Path) -> Submission:
    """The files of a folder, without hidden ones; links that lead out of it are not followed."""
    files: dict[str, bytes] = {}
    left_out, total = [], 0
    home = folder.resolve()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in SKIPPED)
        for name in sorted(names):
            path = Path(place, name)
            inside = str(path.relative_to(folder))
            if name.startswith(".") or inside in OURS or path.suffix in (".svg", ".pdf", ".pyc"):
                continue
            if not path.resolve().is_relative_to(home):
                left_out.append(inside)
                continue
            # Neither pipes nor devices: to read them could take forever.
            if not path.is_file():
                continue
            total += path.stat().st_size
            if len(files) >= MOST_FILES or total > MOST_BYTES:
                raise AssessError(
                    f"{folder} holds more than {MOST_FILES:,} files or "
                    f"{MOST_BYTES / 1e6:.0f} MB. Leave train.py there and what it imports."
                )
            with suppress(OSError):
                files[inside] = path.read_bytes()
    return Submission(folder=folder, files=files, left_out=tuple(left_out))
