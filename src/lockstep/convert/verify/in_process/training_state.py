"""Track where a process is in its training, and what the run of the original has left."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.convert.verify.runs import NUDGED, ORIGINAL
from lockstep.probes.recorder import Recorder

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
        self.sources: dict[str, int] = known.get("sources", {})
        """For each draw: the loader whose samples it is for."""
        self.loaders: dict[str, list[int]] = known.get("loaders", {})
        """For each loader, in the order they were made: its samples, and those of a batch."""
        self.turns: dict[str, list[int]] = known.get("turns", {})
        """For each kind of draw in a batch: how often it was drawn, and the samples there."""

    def close(self) -> None:
        """Write the notes when the original ends."""
        if self.writes:
            notes = {
                "draws": self.draws,
                "sources": self.sources,
                "loaders": self.loaders,
                "turns": self.turns,
            }
            (self.folder / "notes.json").write_text(json.dumps(notes))

    def keep(self, name: str, tensors: list[Tensor]) -> None:
        """Save some weights."""
        _save(tensors, self.folder / f"{name}.pt")

    def get(self, name: str) -> list[Tensor] | None:
        """Load the weights that the original kept; None if it kept none under this name."""
        path = self.folder / f"{name}.pt"
        return _load(path, map_location="cpu") if path.exists() else None


class Now:
    """State that the parts of a proof share."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.kept = Kept(Path(recorder.settings.folder))
        self.begun = False
        """Whether an optimizer exists: draws from now on belong to the training."""
        self.fetching = False
        """Whether a data set is making a sample."""
        self.steps = 0
        """Steps of all optimizers."""
        self.most_steps = 0
        """Steps of the optimizer that made most."""
        self.backwards = 0
        self.evaluated = False
        """Whether the process went through data and has not trained since."""
        self.batch = -1
        """The number of the current batch in its pass; -1 before the first one."""
        self.order: list[int] | None = None
        """Where the collate function puts the samples of the batch it made last, if elsewhere."""
        self.samples: list[int | str] = []
        """Indices of the current batch in the data set, if its samples have any."""
        self.recent: dict[int, list[int | str]] = {}
        """The same for the last batch of each loader since the last step."""
        self.learned = False
        """Whether an optimizer has stepped since the last batch."""
        self.names: Counter[str] = Counter()
        """The number of draws of each kind in this batch."""
        self._noted: set[str] = set()
        recorder.on_end.append(self.kept.close)

    @property
    def size(self) -> int:
        """Number of ranks."""
        there = dist.is_available() and dist.is_initialized()
        return dist.get_world_size() if there else 1

    @property
    def rank(self) -> int:
        """Number of this rank."""
        return self.recorder.rank or 0

    def neutral(self, what: str) -> None:
        """Note once that something differs from a run without probes."""
        if what not in self._noted:
            self._noted.add(what)
            self.recorder.note("neutralised", what=what)

    def name(self, kind: str) -> str:
        """Return the name of the next draw, which is the same in all runs."""
        graded = torch.is_grad_enabled()
        # An evaluation may have other batches than in the original: leave the batch out.
        where = f"{self.steps}.{self.batch}" if graded else f"{self.steps}"
        name = f"{where}.{'learns' if graded else 'looks'}.{kind}"
        self.names[name] += 1
        turn = self.names[name]
        if self.kept.writes:
            self.kept.turns[name] = [turn, len(self.samples)]
        times, rows = self.kept.turns.get(name, [0, 0])
        if self.size > 1 and times == rows > 1:
            # One for each sample, drawn in a loop.
            turn = (turn - 1) * self.size + self.rank + 1
        return f"{name}.{turn}"
