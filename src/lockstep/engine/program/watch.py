"""Notice buffers that a forward pass changes: each replica would change them in its own way."""

from __future__ import annotations

from typing import Any

from torch import nn

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
        if self.places:
            self.before = self._versions()

    def check(self) -> None:
        """Refuse, or in fast mode warn of, buffers that have changed since."""
        if not self.places or (after := self._versions()) == self.before:
            return
        pairs = zip(self.places, self.before, after, strict=True)
        changed = [place[0] for place, then, now in pairs if then != now]
        text = (
            f"the forward pass changes the buffer {some(changed)}, once for each part of the "
            "batch: that depends on the number of replicas."
        )
        if self.exact:
            raise RecipeError(f"{text} Exact mode cannot keep its promise with this model.")
        if not self.warned:
            self.progress.warn(text)
            self.warned = True
