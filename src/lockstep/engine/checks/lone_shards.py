"""Notice shards of one sample in batch norm, which makes zeros of a single value."""

from __future__ import annotations

from lockstep.console import Progress
from lockstep.errors import RecipeError
from lockstep.layers.shards import Shards


class LoneShards:
    """Refuses shards of one sample in whole batches, and warns once of those in smaller ones."""

    def __init__(self, shards: Shards, progress: Progress) -> None:
        self.shards, self.progress = shards, progress
        self.warned = False

    def look(self, samples: int, *, whole: bool) -> None:
        """Look at a step over `samples` samples that was just computed; `whole`: not a last one."""
        if not self.shards.lone:
            return
        self.shards.lone = False
        text = "a batch norm got a shard with one value per channel, of which it can only make zero"
        if whole:
            raise RecipeError(
                f"{text}. A batch of {samples} samples was cut into shards, some with a single "
                "sample. Use a larger global batch or fewer shards."
            )
        if not self.warned:
            self.warned = True
            self.progress.warn(
                f"{text}: a last batch of {samples} samples leaves shards with a single one, which "
                "teach that layer nothing but its bias. Choose another global batch, or drop the "
                "last batch of an epoch (drop_last=True of loop.batches)."
            )
