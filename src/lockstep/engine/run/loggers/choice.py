"""The fields that every logger defines, and the code that several of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

Line = dict[str, Any]
"""One line of metrics.jsonl: its kind (train, test or own), step, epoch, seconds, and values.

The first line that a logger gets is of the kind `settings`: it holds the settings of the run, and
as `step` the number of steps that were done before, which is above 0 after a resume.
"""


class Log(Protocol):
    """A logger that is open."""

    def __call__(self, line: Line) -> None:
        """Take one line."""
        ...

    def close(self, status: str) -> None:
        """End with the status of the run: finished, interrupted or failed."""
        ...


@dataclass(frozen=True, kw_only=True)
class Logger:
    """One choice of --loggers."""

    name: str
    """What people type."""
    make: Callable[[Path], Log]
    """Builds the logger of the run in a folder. It must not import its package yet."""
    package: str = ""
    """The package that it needs, if any."""

    @property
    def is_installed(self) -> bool:
        """Whether the package can be imported; this does not import it."""
        if not self.package:
            return True
        found = find_spec(self.package)
        # A folder of this name, such as one that the package itself wrote, has no origin.
        return found is not None and found.origin is not None


def scalars(line: Line) -> dict[str, float]:
    """Return the numbers of a line, each with the kind of the line before its name.

    >>> scalars({"kind": "train", "step": 3, "loss": 0.5, "samples_per_second": None})
    {'train/loss': 0.5}
    """
    return {
        f"{line['kind']}/{name}": float(value)
        for name, value in line.items()
        if name != "step" and isinstance(value, int | float)
    }


def settings_of(line: Line) -> dict[str, Any]:
    """Return the settings that the first line holds."""
    return {name: value for name, value in line.items() if name not in ("kind", "step")}
