"""Track where a process is in its training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lockstep.convert.verify.in_process.original_run import Kept
from lockstep.probes.recorder import Recorder


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
        self.samples: list[int] = []
        """Indices of the current batch in the data set, if its samples have any."""
        self.names: Counter[str] = Counter()
        """The number of draws of each kind in this batch."""
        self._told: set[str] = set()
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
        if what not in self._told:
            self._told.add(what)
            self.recorder.note("neutralised", what=what)

    def name(self, kind: str) -> str:
        """Return the name of the next draw, which is the same in all runs."""
        graded = torch.is_grad_enabled()
        # An evaluation may have other batches than in the original: leave the batch out.
        where = f"{self.steps}.{self.batch}" if graded else f"{self.steps}"
        name = f"{where}.{'learns' if graded else 'looks'}.{kind}"
        self.names[name] += 1
        return f"{name}.{self.names[name]}"


def swap(owner: Any, name: str, new: Any) -> None:
    """Replace an attribute, if the owner has it."""
    if hasattr(owner, name):
        setattr(owner, name, new)
