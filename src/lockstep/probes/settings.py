"""Settings of the probes, in a file whose path is in the environment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "settings.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to watch a script."""

    folder: str
    """Where all processes write their events."""
    steps: int | None = None
    """Optimizer steps after which the script ends; None lets it end by itself."""
    further: int = 0
    """More steps that the script may make if it ends by itself before them."""
    evaluated: int = 16
    """The most batches of an evaluation in a proof; the number of ranks must divide it."""
    resumed: bool = False
    """Whether the script begins with weights that it loads, which a proof must not set."""
    batches: int | None = None
    """Batches after which each pass over a loader ends; None lets it end by itself."""
    gpus: int | None = None
    """How many GPUs the CPU answers for; None leaves the real ones."""
    oracle: str | None = None
    """Folder with the first step of a run on several ranks, to repeat on one."""
    joined: bool = True
    """Whether that one process gets the ranks' batches joined, or one after the other."""
    early: tuple[str, ...] = ()
    """Modules whose `install(recorder)` is called before the probes install their hooks."""
    watch: bool = True
    """Whether to install the hooks."""
    stand_in_data: bool = False
    """Whether to replace data and libraries that are not on this machine."""

    def write(self) -> Path:
        """Write the settings into their folder and return the path."""
        path = Path(self.folder, NAME)
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: str) -> Settings:
        """Read the settings from a file."""
        return cls(**json.loads(Path(path).read_text()))
