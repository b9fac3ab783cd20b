"""Weights & Biases: a run in the project of the recipe's or program's name.

Without an account on this machine, and with WANDB_MODE=offline, the run is kept in its folder:
`wandb sync` uploads it.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from lockstep.engine.run.loggers.choice import Line, Logger, scalars, settings_of


class WeightsAndBiases:
    """Writes the lines as the history of a run, and the settings as its config."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known = folder, folder / "wandb-run"
        """The file that keeps the run's id, so that a resumed run continues the same one."""
        self.run: Any = None

    def __call__(self, line: Line) -> None:
        """Write the numbers of a line at its step; lines of one step become one."""
        if line["kind"] == "settings":
            self._begin(line)
        else:
            self.run.log(scalars(line), step=line["step"])

    def _begin(self, line: Line) -> None:
        import wandb

        if not self.known.exists():
            self.known.write_text(secrets.token_hex(4) + "\n")
        options: dict[str, Any] = {
            "project": str(line["name"]),
            "name": self.folder.name,
            "dir": str(self.folder),
            "id": self.known.read_text().strip(),
            "resume": "allow",
            "config": settings_of(line),
        }
        try:
            self.run = wandb.init(**options)
        except wandb.errors.UsageError:
            # Nobody is logged in, and a run must not wait for a person.
            self.run = wandb.init(**options, mode="offline")

    def close(self, status: str) -> None:
        """Upload the rest, and mark the run as ended."""
        if self.run is not None:
            self.run.finish(exit_code=0 if status == "finished" else 1)


LOGGER = Logger(name="wandb", make=WeightsAndBiases, package="wandb")
