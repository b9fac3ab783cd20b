"""Let activation checkpointing draw the same random numbers when it computes a layer again.

torch.utils.checkpoint runs a piece of the forward pass a second time during backward. It restores
torch's generators for that, but the masks of `ShardDropout` come from a count of draws, which this
module restores. Running statistics of batch norm must not change a second time either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from torch.utils import checkpoint

from lockstep.layers.shards import Shards

_followed: WeakSet[Shards] = WeakSet()
_installed: list[str] = []


def follow(shards: Shards) -> None:
    """Restore the draws of `shards` whenever a checkpoint computes its function again."""
    if not _installed:
        _install()
    _followed.add(shards)


class _Recomputed:
    """The function of one checkpoint. When it is computed again, its draws are repeated."""

    def __init__(self, function: Callable[..., Any], *, computed: bool) -> None:
        """Remember the draws so far; `computed` says that the first call is already the second."""
        self.function, self.computed = function, computed
        self.draws = [(shards, shards.draws) for shards in _followed]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if not self.computed:
            self.computed = True
            return self.function(*arguments, **keywords)
        outside = [(shards, shards.draws, shards.again) for shards, _ in self.draws]
        for shards, draws in self.draws:
            shards.draws, shards.again = draws, True
        try:
            return self.function(*arguments, **keywords)
        finally:
            # Also if torch stops the second computation early, which it does with an exception.
            for shards, draws, again in outside:
                shards.draws, shards.again = draws, again


def _install() -> None:
    """Wrap the function of every checkpoint; do this once."""
    module: Any = checkpoint
    plain = module._checkpoint_without_reentrant_generator

    def generator(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        # `checkpoint` itself computes the function first; this one is for the second time.
        return plain(_Recomputed(function, computed=True), *arguments, **keywords)

    module._checkpoint_without_reentrant_generator = generator
    module.CheckpointFunction = _Reentrant(module.CheckpointFunction)
    _installed.append("torch.utils.checkpoint")


class _Reentrant:
    """The older kind of checkpoint, which calls its function both times."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Compute the function now, and again during backward."""
        return self.plain.apply(_Recomputed(function, computed=False), *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)
