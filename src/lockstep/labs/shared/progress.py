"""The learner's progress and the measurements on this machine, as files in the user's folder."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.engine.run.atomic_write import replace_file
from lockstep.labs.shared.catalogue import labs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Measured = TypeVar("Measured", bound=DataclassInstance)


def home() -> Path:
    """Return the folder of the progress file and the measurements."""
    return Path.home() / ".local" / "share" / "lockstep" / "labs"


class Progress:
    """The passed tasks, the code the learner typed, and the quiz results."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or home()
        self.path = self.folder / "progress.json"

    def read(self) -> dict[str, Any]:
        """Read the progress file; an unreadable file counts as empty, and `_write` keeps a copy."""
        try:
            content = json.loads(self.path.read_text())
            return content if isinstance(content.get("labs"), dict) else {"labs": {}}
        except (OSError, ValueError, AttributeError):
            return {"labs": {}}

    def of(self, number: int) -> dict[str, Any]:
        """Return the progress in one lab: `tasks` by name, and `quiz`."""
        found = self.read()["labs"].get(str(number))
        found = found if isinstance(found, dict) else {}
        return {"tasks": found.get("tasks") or {}, "quiz": found.get("quiz")}

    def passed(self, number: int) -> list[str]:
        """Return the names of the passed tasks."""
        return [name for name, task in self.of(number)["tasks"].items() if task.get("passed")]

    def outline(self) -> dict[str, Any]:
        """Return the passed tasks and the quiz results, without the learner's code."""
        return {
            "labs": {
                str(lab.number): {
                    "tasks": {name: name in self.passed(lab.number) for name in lab.tasks},
                    "quiz": self.of(lab.number)["quiz"],
                }
                for lab in labs()
            }
        }

    def attempt(self, number: int, name: str, text: str, passed: bool) -> None:
        """Record an attempt at a task. A passed task stays passed and keeps its code."""
        lab = self.of(number)
        before = lab["tasks"].get(name, {})
        when = time.strftime("%Y-%m-%d %H:%M") if passed else None
        lab["tasks"][name] = {
            "text": before["text"] if before.get("passed") and not passed else text,
            "tries": before.get("tries", 0) + 1,
            "passed": before.get("passed") or when,
        }
        self._write(number, lab)

    def quiz(self, number: int, right: int, of: int) -> None:
        """Record a quiz result; the best one counts."""
        lab = self.of(number)
        if lab["quiz"] is None or right >= lab["quiz"]["right"]:
            lab["quiz"] = {"right": right, "of": of, "when": time.strftime("%Y-%m-%d %H:%M")}
            self._write(number, lab)

    def _write(self, number: int, lab: dict[str, Any]) -> None:
        content = self.read()
        if self.path.exists() and not content["labs"]:
            self.path.replace(self.path.with_suffix(".damaged.json"))
        content["labs"][str(number)] = lab
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, (json.dumps(content, indent=1) + "\n").encode())

    def keep(self, number: int, name: str, measured: DataclassInstance) -> None:
        """Save a measurement for later visits to the page."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._file(number, name), json.dumps(asdict(measured)).encode())

    def has(self, number: int, name: str) -> bool:
        """Return whether there is a saved measurement."""
        return self._file(number, name).exists()

    def kept(self, number: int, name: str, kind: type[Measured]) -> Measured | None:
        """Return the measurement of an earlier visit, unless its format has changed since."""
        try:
            return kind(**json.loads(self._file(number, name).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _file(self, number: int, name: str) -> Path:
        return self.folder / f"lab{number}-{name}.json"
