"""Check and write what commands that start several runs share: compare, tune and bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lockstep.errors import FolderError, PlanError
from lockstep.world import launched


def check_runs(command: str, seeds: int, margin: float) -> None:
    """Raise an error if `command` cannot start its runs."""
    for flag, number, least in (("seeds", seeds, 1), ("margin", margin, 0)):
        if number < least:
            raise PlanError(f"--{flag} {number}: give {least} or more.")
    if launched() is not None:
        raise PlanError(f"{command} starts its replicas itself: run it without torchrun.")


def new_folder(out: Path | None, command: str, recipe: str) -> Path:
    """Return the folder for all runs, by default one named after the command, recipe and time."""
    from lockstep.engine.run.run_folder import new_folder as made_up

    if out is None:
        return made_up(Path("runs"), f"{command}-{recipe}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FolderError(f"--out {out} is not empty. Name a new or an empty folder.")
    return out


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write the document of --json to a file."""
    from lockstep.engine.run.atomic_write import replace_file

    replace_file(path, (json.dumps(document, indent=2) + "\n").encode())
