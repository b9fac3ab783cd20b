"""The fields that every compression defines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch.distributed as dist
from torch import Tensor, nn

# No `from __future__ import annotations` here: DDP checks the annotations of its hooks.
Average = Callable[[list[Tensor], Tensor, dist.ProcessGroup | None], None]
"""Replaces the flat gradients of some parameters by their mean over all replicas."""


class Memory(Protocol):
    """The state that a compression keeps from step to step."""

    def bookmark(self) -> Callable[[], None]:
        """Return a function that goes back to what is kept now."""
        ...

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return what a checkpoint must hold, by name: the same on all replicas."""
        ...

    def load(self, model: nn.Module, state: dict[str, Tensor], step: int) -> None:
        """Continue from the state that was saved after `step`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Compression:
    """One choice of --wire."""

    name: str
    """What people type."""
    sent_bytes: Callable[[Tensor], int]
    """Bytes that are averaged for a parameter in one step."""
    make: Callable[[int], tuple[Average, Memory | None]] | None = None
    """Builds the exchange, and what it keeps; None: DDP sends the gradients as they are.

    The exchange should compress nothing in the given number of first steps.
    """
    one_bucket: bool = False
    """Whether all gradients should travel in one bucket, whatever the link."""
    graph_obstacle: str = ""
    """Why a step with this exchange cannot be recorded as a CUDA graph, if it cannot."""

    @property
    def changes_gradients(self) -> bool:
        """Whether gradients are rounded when they leave a replica."""
        return self.make is not None
