"""A side: one way to train a work, and what the bench must know about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.bench.assignment import Assignment


@dataclass(frozen=True, kw_only=True)
class Side:
    """A library, or a loop written by hand, that can train any work."""

    name: str
    sentence: str
    """Describes the side in the JSON result."""
    run: Callable[[Assignment], None]
    """Trains until the assignment's pace ends it. A peer's library is imported in here, so that
    only the processes of this side load it."""
    order: int = 0
    """Place in the tables and in the first round; smaller comes first."""
    needs: tuple[str, ...] = ()
    """Packages; one of them must be installed."""
    one_replica: bool = False
    """Whether the side can use one replica only."""
    only_fp32: bool = False
    """Whether the side stays in fp32, whatever --precision says."""
    on_cpu: bool = True
    """Whether the side takes part on the CPU by default."""
    shards: bool = False
    """Whether the number of replicas must be a power of two."""

    @property
    def installed(self) -> bool:
        """Whether the side's library is installed."""
        return not self.needs or any(find_spec(name) for name in self.needs)
