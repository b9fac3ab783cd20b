"""The first step of one rank, in a file for the process that repeats it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.probes.names import FIRST_STEP

# As they are before the probes are set: these are no files of the script's.
_save, _load = torch.save, torch.load


@dataclass
class Given:
    """A batch that a loader gave."""

    data: Any
    size: int
    random: Tensor
    """The state of dropout's generator when it came."""


@dataclass
class FirstStep:
    """What is known of it."""

    batches: dict[str, list[Given]]
    """By their loaders."""
    parameters: list[Tensor]
    """Before the first backward pass."""
    gradients: list[Tensor | None]
    names: list[str]
    random: Tensor
    """The state of dropout's generator at the end."""
    drew: bool
    """Whether numbers were drawn from a generator that is not torch's."""
    autocast: set[torch.dtype]
    """Types that it cast to."""

    def write(self, folder: str, rank: int) -> None:
        """Into a file of the rank's own."""
        path = Path(folder, FIRST_STEP.format(rank))
        try:
            _save(self, path)
        except Exception:
            path.unlink(missing_ok=True)  # half of it
            raise


def read(folder: str) -> list[FirstStep]:
    """As all ranks kept it, in their order."""
    files = Path(folder).glob(FIRST_STEP.format("*"))
    ranks = sorted(files, key=lambda path: int(path.stem.rpartition("-")[2]))
    return [_load(path, map_location="cpu", weights_only=False) for path in ranks]


def gradients_of(parameters: list[Tensor]) -> list[Tensor | None]:
    """As they are now."""
    return [None if p.grad is None else p.grad.detach().clone() for p in parameters]
