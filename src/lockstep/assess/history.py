"""The history of attempts in the learner's folder, one line per attempt."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from lockstep.assess.grade import Grade
from lockstep.assess.starter import Task
from lockstep.errors import AssessError

FILE = "history.jsonl"


def attempt(grade: Grade, task: Task, name: str) -> dict[str, Any]:
    """Return an attempt as a line of the history."""
    now = time.time()
    spent = task.spent(now)
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "name": name,
        "minutes": round(spent, 1),
        "in_time": spent <= task.minutes,
        **grade.described(),
    }


def append(folder: Path, line: dict[str, Any]) -> None:
    """Append a line to the history."""
    path = folder / FILE
    try:
        # A full disk may have left half a line, which must not damage this one.
        whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
        with path.open("a") as file:
            file.write(("" if whole else "\n") + json.dumps(line) + "\n")
    except OSError as error:
        raise AssessError(f"{path} cannot be written: {error.strerror}.") from None


def attempts(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Return all attempts, and the number of damaged lines."""
    path = folder / FILE
    found, damaged = [], 0
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            one = json.loads(line)
            known = isinstance(one["score"], int) and isinstance(one["checks"], dict)
            _ = one["time"], one["in_time"], one["of"]
        except (ValueError, KeyError, TypeError):
            known = False
        if known:
            found.append(one)
        else:
            damaged += 1
    return found, damaged
