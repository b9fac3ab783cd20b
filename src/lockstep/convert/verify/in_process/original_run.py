"""Keep what the run of the original leaves for all other runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.convert.verify.runs import NUDGED, ORIGINAL

# Taken before the probes patch them, since these files do not belong to the script.
_save, _load = torch.save, torch.load


class Kept:
    """Values that the original writes and the other runs read."""

    def __init__(self, run: Path) -> None:
        self.folder = run.parent / "kept"
        self.folder.mkdir(exist_ok=True)
        self.writes, self.nudges = run.name == ORIGINAL, run.name == NUDGED
        path = self.folder / "notes.json"
        known = json.loads(path.read_text()) if path.exists() and not self.writes else {}
        self.draws: dict[str, list[Any]] = known.get("draws", {})
        """For each draw: its shape, the dimension of the batch, and the rows per sample."""
        self.loaders: dict[str, list[int]] = known.get("loaders", {})
        """For each loader, in the order they were made: its samples, and those of a batch."""

    def close(self) -> None:
        """Write the notes when the original ends."""
        if self.writes:
            notes = {"draws": self.draws, "loaders": self.loaders}
            (self.folder / "notes.json").write_text(json.dumps(notes))

    def keep(self, name: str, tensors: list[Tensor]) -> None:
        """Save some weights."""
        _save(tensors, self.folder / f"{name}.pt")

    def get(self, name: str) -> list[Tensor] | None:
        """Load the weights that the original kept; None if it kept none under this name."""
        path = self.folder / f"{name}.pt"
        return _load(path, map_location="cpu") if path.exists() else None
