"""The loggers of one run: check their names early, open them, feed them, and close them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lockstep.console import Progress
from lockstep.engine.run.loggers import LOGGERS
from lockstep.engine.run.loggers.choice import Line, Log
from lockstep.errors import PlanError, RunError, raised

Chosen = str | Sequence[str | Callable[[dict[str, Any]], None]]
"""Names of loggers (also in one string, with commas between them), and functions of a line."""


def checked(chosen: Chosen) -> tuple[str | Callable[[Line], None], ...]:
    """Return the chosen loggers; refuse names that are unknown or not installed."""
    if isinstance(chosen, str):
        chosen = [name.strip() for name in chosen.split(",") if name.strip()]
    for one in chosen:
        if not isinstance(one, str):
            if not callable(one):
                raise PlanError(
                    f"loggers holds a {type(one).__name__}, which cannot be called. Give a name "
                    f"({', '.join(LOGGERS)}), or a function of a line: def log(line): ..."
                )
        elif one not in LOGGERS:
            raise PlanError(f"--loggers {one}: known are {', '.join(LOGGERS)}.")
        elif not LOGGERS[one].is_installed:
            package = LOGGERS[one].package
            raise PlanError(
                f"--loggers {one} needs the package {package}, which is not installed. Type: pip "
                f"install {package}"
            )
    return tuple(chosen)


class Loggers:
    """The open loggers of a run. Only the first replica opens any."""

    def __init__(self, chosen: Chosen, folder: Path, progress: Progress) -> None:
        self.progress = progress
        self.chosen, self.folder = checked(chosen), folder
        self.open: list[tuple[str, Log]] = []

    def begin(self, summary: dict[str, Any], step: int) -> None:
        """Open the loggers, and give them the settings of the run; `step` steps are done."""
        known = summary["recipe"] | {name: summary[name] for name in ("exact", "replicas")}
        known = {name: value for name, value in known.items() if value not in (None, {}, [])}
        settings = {"kind": "settings", "step": step, **known}
        for one in self.chosen:
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            log = LOGGERS[one].make(self.folder) if isinstance(one, str) else _Own(one)
            self.open.append((name, log))
            self._give(name, log, settings)

    def __call__(self, line: Line) -> None:
        """Give a line to all loggers."""
        for name, log in self.open:
            self._give(name, log, line)

    def _give(self, name: str, log: Log, line: Line) -> None:
        try:
            # A copy: a logger may change it.
            log(dict(line))
        except Exception as error:
            raise RunError(raised(f"the logger {name}", error)) from error

    def close(self, status: str) -> None:
        """Close all loggers, also after an error. A run does not fail because of this."""
        while self.open:
            name, log = self.open.pop()
            try:
                log.close(status)
            except Exception as error:
                self.progress.warn(raised(f"the logger {name}", error))


class _Own:
    """A function of the program. It may have a method `close`, too."""

    def __init__(self, function: Callable[[Line], None]) -> None:
        self.function = function

    def __call__(self, line: Line) -> None:
        self.function(line)

    def close(self, status: str) -> None:
        """Call the function's own `close`, if there is one."""
        if callable(close := getattr(self.function, "close", None)):
            close()
