"""Notice buffers that a forward pass changes: each replica would change them in its own way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lockstep.console import Progress
from lockstep.engine.recipe.prepare import some
from lockstep.errors import RecipeError
from lockstep.layers.batch_norm import ShardBatchNorm, SyncedBatchNorm


class BufferWatch:
    """Compares the buffers of all models before and after the forward passes of a step."""

    def __init__(self, progress: Progress, *, exact: bool) -> None:
        self.progress, self.exact = progress, exact
        self.places: list[tuple[str, dict[str, Any], str]] = []
        """The name of each buffer, and where its layer keeps it."""
        self.before: list[tuple[int, int]] = []
        self.copies: list[Tensor | None] = []
        """The buffers as they were, to tell a change from a value that was written again."""
        self.warned = False

    def add(self, module: nn.Module) -> None:
        """Watch the buffers of a model that lockstep does not keep per shard."""
        for path, layer in module.named_modules():
            if not isinstance(layer, ShardBatchNorm | SyncedBatchNorm):
                for name in layer._buffers:
                    self.places.append((f"{path}.{name}".lstrip("."), layer._buffers, name))

    def _versions(self) -> list[tuple[int, int]]:
        """Return the identity of each buffer, and how often it was changed in place."""
        found = [owner.get(name) for _, owner, name in self.places]
        return [(id(b), -1 if b is None else b._version) for b in found]

    def begin(self) -> None:
        """Remember the buffers before the forward passes of a step."""
        if self.places and (now := self._versions()) != self.before:
            self.before = now
            found = [owner.get(name) for _, owner, name in self.places]
            self.copies = [None if b is None else b.detach().clone() for b in found]

    def check(self) -> None:
        """Refuse, or in fast mode warn of, buffers that have changed since."""
        if not self.places or (after := self._versions()) == self.before:
            return
        changed = [
            place
            for (place, owner, name), then, now, copy in zip(
                self.places, self.before, after, self.copies, strict=True
            )
            if then != now and not _equal(owner.get(name), copy)
        ]
        self.before = []
        if not changed:
            return
        text = (
            f"the forward pass changes the buffer {some(changed)}, once for each part of the "
            "batch: that depends on the number of replicas."
        )
        if self.exact:
            raise RecipeError(f"{text} Exact mode cannot keep its promise with this model.")
        if not self.warned:
            self.progress.warn(text)
            self.warned = True


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and torch.equal(one, other)
