"""Let samplers draw one order in all runs, by the number of the pass and the length of the data.

Passes count if something was learned in them; others go by the steps made so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from lockstep.convert.verify.in_process.training_state import Now
from lockstep.keys import key


def install(now: Now) -> None:
    """Replace the orders of torch's samplers."""
    passes: WeakKeyDictionary[Any, Passes] = WeakKeyDictionary()
    by_rank: Any = DistributedSampler.__iter__

    def seed(sampler: Any, mark: int, length: int) -> int:
        if not torch.is_grad_enabled():
            return order("looks", now.most_steps, length)
        return order("learns", passes.setdefault(sampler, Passes(mark)).turn(mark), length)

    def shuffled(at_random: Any) -> Any:
        @wraps(at_random)
        def drawn(self: Any) -> Iterator[int]:
            own = self.generator
            number = seed(self, now.backwards, len(self))
            self.generator = torch.Generator().manual_seed(number)
            try:
                yield from at_random(self)
            finally:
                self.generator = own

        return drawn

    epochs_set: Counter[int] = Counter()
    tell: Any = DistributedSampler.set_epoch

    @wraps(tell)
    def heard(self: Any, epoch: int) -> None:
        epochs_set[id(self)] += 1
        tell(self, epoch)

    @wraps(by_rank)
    def divided(self: Any) -> Iterator[int]:
        # By the calls of set_epoch: a script that forgets to call it gets the same order again.
        own = self.seed, self.epoch
        self.seed, self.epoch = seed(self, epochs_set[id(self)], len(self.dataset)), 0
        try:
            return by_rank(self)
        finally:
            self.seed, self.epoch = own

    for kind in (RandomSampler, SubsetRandomSampler, WeightedRandomSampler):
        setattr(kind, "__iter__", shuffled(kind.__iter__))  # noqa: B010
    setattr(DistributedSampler, "__iter__", divided)  # noqa: B010
    setattr(DistributedSampler, "set_epoch", heard)  # noqa: B010
    now.neutral("the order of shuffled samples")


class Passes:
    """The passes of one sampler: a new one begins when its mark changes."""

    def __init__(self, mark: int) -> None:
        self.mark, self.number = mark, 0

    def turn(self, mark: int) -> int:
        """Return the number of the pass that begins now."""
        self.number, self.mark = self.number + (mark != self.mark), mark
        return self.number


def order(why: str, turn: int, length: int) -> int:
    """Return the seed of a pass."""
    return key("order", why, turn, length)
