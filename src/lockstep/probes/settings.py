"""What the probes are told, in a file that the environment names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "settings.json"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a script is to be watched."""

    folder: str
    """Where the notes of all processes go."""
    steps: int | None = None
    """Optimizer steps after which the script is ended; None: it ends by itself."""
    batches: int | None = None
    """Batches after which each pass over a loader ends; None: where it ends by itself."""
    gpus: int | None = None
    """GPUs that the CPU stands in for; None: the real ones are used."""
    oracle: str | None = None
    """Folder with the first step of a run on several ranks, which this run repeats on one."""
    joined: bool = True
    """Whether the ranks' batches are given to the one process joined, or one after the other."""
    early: tuple[str, ...] = ()
    """Modules whose `install(recorder)` is called once torch is there, before the probes' own."""
    watch: bool = True
    """Whether anything is noted. If not, only the CPU stands in."""

    stand_in_data: bool = False
    """Whether data and libraries that are not here are stood in for."""

    def write(self) -> Path:
        """Into its folder."""
        path = Path(self.folder, NAME)
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: str) -> Settings:
        """From a file."""
        return cls(**json.loads(Path(path).read_text()))
