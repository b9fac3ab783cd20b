"""Samplers: one order for all runs, by the number of the pass and the length of the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import RandomSampler
from torch.utils.data.distributed import DistributedSampler

from lockstep.convert.verify.inside.now import Now
from lockstep.keys import key


def install(now: Now) -> None:
    """Set the order."""
    passes: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()
    firsts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    at_random: Any = RandomSampler.__iter__
    by_rank: Any = DistributedSampler.__iter__

    @wraps(at_random)
    def shuffled(self: Any) -> Iterator[int]:
        counts = passes.setdefault(self, Counter())
        turn, counts["passes"] = counts["passes"], counts["passes"] + 1
        own = self.generator
        seed = order(turn, len(self.data_source))
        self.generator = torch.Generator().manual_seed(seed)
        try:
            yield from at_random(self)
        finally:
            self.generator = own

    @wraps(by_rank)
    def divided(self: Any) -> Iterator[int]:
        # By what it was told: who forgets to tell it the epoch gets the same order again.
        turn = self.epoch - firsts.setdefault(self, self.epoch)
        own = self.seed, self.epoch
        self.seed, self.epoch = order(turn, len(self.dataset)), 0
        try:
            return by_rank(self)
        finally:
            self.seed, self.epoch = own

    setattr(RandomSampler, "__iter__", shuffled)  # noqa: B010
    setattr(DistributedSampler, "__iter__", divided)  # noqa: B010
    now.neutral("the order of shuffled samples")


def order(turn: int, length: int) -> int:
    """The seed of a pass."""
    return key("order", turn, length)
