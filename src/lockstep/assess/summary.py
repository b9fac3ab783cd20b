"""Summarise the progress of all learners in a folder, for the instructor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lockstep.assess import history
from lockstep.assess.signature import opened
from lockstep.assess.starter import FILE, read_task
from lockstep.errors import AssessError, LockstepError

PROGRESS = "progress.json"


def summary(folder: Path, trusted: bytes | None = None) -> list[dict[str, Any]]:
    """Return a row for each learner's folder; with `trusted`, count only its certificates."""
    if not folder.is_dir():
        raise AssessError(
            f"{folder} is not a folder. Name the one that holds the learners' folders."
        )
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    rows = [row(p, trusted) for p in places if (p / FILE).exists() or (p / PROGRESS).exists()]
    if not rows:
        raise AssessError(
            f"{folder} holds no learner's folder: no folder in it has a {FILE}. "
            "`lockstep assess start` writes one."
        )
    return rows


def row(folder: Path, trusted: bytes | None = None) -> dict[str, Any]:
    """Return the facts about one learner; list damaged files as problems."""
    problems: list[str] = []
    name = ""
    if (folder / FILE).exists():
        try:
            name = read_task(folder).name
        except LockstepError as error:
            problems.append(str(error))
    tries, damaged = history.attempts(folder)
    if damaged:
        problems.append(f"{damaged} line(s) of {history.FILE} are damaged")
    best = max(tries, key=lambda one: one["score"], default=None)
    return {
        "folder": folder.name or str(folder),
        "name": next((one["name"] for one in reversed(tries) if one.get("name")), name),
        "attempts": len(tries),
        "best": None if best is None else {"score": best["score"], "of": best["of"]},
        "failing": [] if best is None else [n for n, c in best["checks"].items() if not _good(c)],
        "in_time": None if best is None else bool(best["in_time"]),
        "last": tries[-1]["time"] if tries else None,
        "certificate": _certificate(folder, trusted),
        "labs": _labs(folder, problems),
        "problems": problems,
    }


def _good(check: Any) -> bool:
    return isinstance(check, dict) and check.get("passed") is True


def _certificate(folder: Path, trusted: bytes | None) -> dict[str, Any] | None:
    """Return whether the learner's certificate is valid, and its key; None if there is none."""
    from lockstep.assess.signature import verify

    for form in ("svg", "pdf"):
        path = folder / f"certificate.{form}"
        if not path.is_file():
            continue
        try:
            found = opened(path.read_bytes())
            # Without a trusted key, check the certificate against the key that it names.
            verify(path.read_bytes(), trusted or found.key, own=False)
        except (LockstepError, OSError) as error:
            return {"valid": False, "why": str(error), "key": None, "by": None, "trusted": False}
        return {
            "valid": True,
            "why": "",
            "key": found.by,
            "by": found.payload["by"],
            "trusted": trusted is not None,
        }
    return None


def _labs(folder: Path, problems: list[str]) -> dict[str, Any] | None:
    """Return the learner's progress in the labs, if the folder has it."""
    path = folder / PROGRESS
    if not path.is_file():
        return None
    try:
        labs = json.loads(path.read_text())["labs"]
        return {
            str(number): {
                "done": sum(_passed(task) for task in lab.get("tasks", {}).values()),
                "tasks": len(lab.get("tasks", {})),
                "quiz": _quiz(lab.get("quiz")),
            }
            for number, lab in sorted(labs.items())
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problems.append(f"{PROGRESS} is damaged: {type(error).__name__}")
        return None


def _passed(task: Any) -> bool:
    """Return whether a task is passed, from an outline or from the labs' own file."""
    return bool(task.get("passed") if isinstance(task, dict) else task)


def _quiz(quiz: Any) -> str | None:
    return None if not quiz else f"{int(quiz['right'])}/{int(quiz['of'])}"
