"""Store the first step of a rank in a file, for the process that repeats it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lockstep.probes.names import FIRST_STEP

# The originals: the probes would record these files as the script's.
_save, _load = torch.save, torch.load


@dataclass
class Given:
    """A batch that a loader gave."""

    data: Any
    size: int
    random: Tensor
    """The state of dropout's generator when the batch came."""


@dataclass
class FirstStep:
    """The first step of one rank."""

    batches: dict[str, list[Given]]
    """Batches of each loader."""
    parameters: list[Tensor]
    """Parameters before the first backward pass."""
    gradients: list[Tensor | None]
    names: list[str]
    random: Tensor
    """The state of dropout's generator at the end."""
    drew: bool
    """Whether the step drew from a generator other than torch's."""
    autocast: set[torch.dtype]
    """Types that autocast used."""
    synced: bool
    """Whether batch norm was synchronised: a script may do that only with several ranks."""

    def write(self, folder: str, rank: int) -> None:
        """Write the step to the rank's file."""
        path = Path(folder, FIRST_STEP.format(rank))
        try:
            _save(self, path)
        except Exception:
            path.unlink(missing_ok=True)  # half a file
            raise


def read(folder: str) -> list[FirstStep]:
    """Return the first steps of all ranks, in their order."""
    files = Path(folder).glob(FIRST_STEP.format("*"))
    ranks = sorted(files, key=lambda path: int(path.stem.rpartition("-")[2]))
    return [_load(path, map_location="cpu", weights_only=False) for path in ranks]


def gradients_of(parameters: list[Tensor]) -> list[Tensor | None]:
    """Return copies of the present gradients."""
    return [None if p.grad is None else p.grad.detach().clone() for p in parameters]
