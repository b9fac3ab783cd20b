"""Read the files of a submission, and restore the learner's folder after the grading."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import AssessError

PROGRAM = "train.py"
OURS = ("task.json", "history.jsonl", "data.npz", "progress.json")
"""Files of the folder that do not belong to the program."""
SKIPPED = {"__pycache__", "venv", "node_modules", "out", "runs"}
MOST_FILES, MOST_BYTES = 2000, 50_000_000
KEPT = ".before-grading"
"""The suffix for the old content of a file that changed during the grading."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The files of a program, read once."""

    folder: Path
    files: dict[str, bytes]
    """The contents by path in the folder."""
    left_out: tuple[str, ...] = ()
    """Links that lead out of the folder, which are skipped."""

    def mend(self) -> list[str]:
        """Restore deleted files, overwrite nothing, and return what changed.

        The learner may have edited a file as well as the program, so a changed file stays, with
        its old content beside it.
        """
        said = []
        for name, content in self.files.items():
            path = self.folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                said.append(f"{name} was deleted and has been restored")
            elif path.is_dir() or path.read_bytes() != content:
                kept = path.with_name(path.name + KEPT)
                kept.write_bytes(content)
                said.append(f"{name} was changed; {kept.name} has the old content")
        return said


def read(folder: Path) -> Submission:
    """Read the files of a folder; skip hidden files and links that lead out of it."""
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
            # Skip pipes and devices: reading them could take forever.
            if not path.is_file():
                continue
            total += path.stat().st_size
            if len(files) >= MOST_FILES or total > MOST_BYTES:
                raise AssessError(
                    f"{folder} holds more than {MOST_FILES:,} files or "
                    f"{MOST_BYTES / 1e6:.0f} MB. Keep only train.py and the files that it imports."
                )
            with suppress(OSError):
                files[inside] = path.read_bytes()
    return Submission(folder=folder, files=files, left_out=tuple(left_out))
