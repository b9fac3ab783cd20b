"""Where a process is in its training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lockstep.convert.verify.in_process.original_run import Kept
from lockstep.probes.recorder import Recorder


class Now:
    """What the parts of a proof tell each other."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.kept = Kept(Path(recorder.settings.folder))
        self.begun = False
        """Whether an optimizer exists: what is drawn from now on belongs to the training."""
        self.fetching = False
        """Whether a data set makes a sample."""
        self.steps = 0
        """Of all optimizers."""
        self.most_steps = 0
        """Of the optimizer that made most."""
        self.backwards = 0
        self.evaluated = False
        """Whether data were gone through, and nothing was learned since."""
        self.batch = -1
        """The number of the current batch in its pass; before the first one, none."""
        self.samples: list[int] = []
        """Of the current batch: their places in the data set, as far as they have any."""
        self.names: Counter[str] = Counter()
        """How many draws of a kind there were in this batch."""
        self.on_pass: list[Callable[[Any], None]] = []
        """Called with a loader before a pass over it begins."""
        self._told: set[str] = set()
        recorder.on_end.append(self.kept.close)

    @property
    def size(self) -> int:
        """Ranks."""
        there = dist.is_available() and dist.is_initialized()
        return dist.get_world_size() if there else 1

    @property
    def rank(self) -> int:
        """The number of this one."""
        return self.recorder.rank or 0

    def neutral(self, what: str) -> None:
        """Say what is not as in a run that nobody watches; once."""
        if what not in self._told:
            self._told.add(what)
            self.recorder.note("neutralised", what=what)

    def name(self, kind: str) -> str:
        """Of the next draw: the same in all runs."""
        graded = torch.is_grad_enabled()
        # Who evaluates may have other batches than the original: there the sample decides alone.
        where = f"{self.steps}.{self.batch}" if graded else f"{self.steps}"
        name = f"{where}.{'learns' if graded else 'looks'}.{kind}"
        self.names[name] += 1
        return f"{name}.{self.names[name]}"


def swap(owner: Any, name: str, new: Any) -> None:
    """Set it, if the owner has something of this name."""
    if hasattr(owner, name):
        setattr(owner, name, new)
