"""Observations of a run: which rank trained on which samples, and which files it wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lockstep.assess.dealt_data import Samples
from lockstep.assess.image_marks import WIDTH
from lockstep.assess.supervise import WEIGHTS
from lockstep.probes.trace import Rank, Trace


@dataclass(frozen=True)
class Batch:
    """Samples that went through a model together."""

    step: int
    """The optimizer steps before the batch."""
    numbers: Tensor
    """The number of each sample; -1 if the grader does not know it."""
    learned: bool
    """Whether a gradient came back."""


@dataclass
class Watched:
    """The observations of one run."""

    group: int
    """The number of processes in the process group."""
    batches: list[list[Batch]]
    """The batches of each rank, in order."""
    sums: list[dict[tuple[int, str], int]]
    """For each rank, a checksum of its weights before and after every step."""
    writers: dict[int, list[int]] = field(default_factory=dict)
    """The ranks that wrote the weights of each epoch."""
    ends: dict[int, int] = field(default_factory=dict)
    """The number of steps before the weights of each epoch were written."""
    outside: list[str] = field(default_factory=list)
    """Files that the program wrote outside its folders."""

    def learned(self, epoch: int) -> list[Tensor]:
        """Return the numbers of the samples that each rank trained on in an epoch, in order."""
        first, last = self.ends.get(epoch - 1, 0), self.ends.get(epoch, 0)
        none = torch.empty(0, dtype=torch.int64)
        return [
            torch.cat([none, *(b.numbers for b in own if b.learned and first <= b.step < last)])
            for own in self.batches
        ]

    def evaluated(self, epoch: int) -> list[list[Tensor]]:
        """Return the batches that each rank only evaluated after the last step of an epoch."""
        end = self.ends.get(epoch, -1)
        return [
            [b.numbers for b in batches if not b.learned and b.step == end]
            for batches in self.batches
        ]


def watched(trace: Trace, samples: Samples, out: Path, allowed: Path) -> Watched:
    """Read the trace of a run; the program may write into `out` and `allowed` only."""
    found = Watched(
        len(trace.ranks) if trace.size > 1 else 1,
        [_batches(rank, samples) for rank in trace.ranks],
        [{(e["step"], e["when"]): e["sum"] for e in rank.of("weights")} for rank in trace.ranks],
    )
    out, allowed = out.resolve(), allowed.resolve()
    for rank in trace.ranks:
        for event in rank.of("wrote"):
            path = Path(event["path"]).resolve()
            name = WEIGHTS.fullmatch(path.name) if path.parent == out else None
            if name is not None:
                writers = found.writers.setdefault(int(name[1]), [])
                if rank.number not in writers:
                    writers.append(rank.number)
                if writers == [rank.number]:
                    found.ends[int(name[1])] = event["step"]
            elif not path.is_relative_to(allowed):
                found.outside.append(event["path"])
    return found


def _batches(rank: Rank, samples: Samples) -> list[Batch]:
    events = list(rank.of("fed"))
    rows = [np.frombuffer(bytes.fromhex(e["rows"]), np.float32).reshape(-1, WIDTH) for e in events]
    if not rows:
        return []
    numbers = samples.known(torch.from_numpy(np.concatenate(rows)))
    parts = numbers.split([len(part) for part in rows])
    return [Batch(e["step"], n, e["learned"]) for e, n in zip(events, parts, strict=True)]
