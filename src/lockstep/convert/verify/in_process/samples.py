"""Give samplers one order in all runs, and each sample the same random numbers.

An order follows from the number of the pass and the length of the data. Passes count if something
was learned in them; others go by the steps made so far.

The random numbers that a data set draws for a sample follow from its index and the pass. A stream
has no index: all ranks draw the same for all of its samples, and each takes its part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import RandomSampler, Subset, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data._utils import fetch
from torch.utils.data.distributed import DistributedSampler

from lockstep.convert.verify.in_process.seeds import restore, seed, state
from lockstep.convert.verify.in_process.training_state import Now
from lockstep.keys import key
from lockstep.probes.recorder import LoaderPass


def set_order(now: Now) -> None:
    """Replace the orders of torch's samplers."""
    passes: WeakKeyDictionary[Any, Passes] = WeakKeyDictionary()
    by_rank: Any = DistributedSampler.__iter__

    def number_of(sampler: Any, mark: int, length: int) -> int:
        if not torch.is_grad_enabled():
            return key("order", "looks", now.most_steps, length)
        turn = passes.setdefault(sampler, Passes(mark)).turn(mark)
        return key("order", "learns", turn, length)

    def shuffled(at_random: Any) -> Any:
        @wraps(at_random)
        def drawn(self: Any) -> Iterator[int]:
            own = self.generator
            number = number_of(self, now.backwards, len(self))
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
        self.seed, self.epoch = number_of(self, epochs_set[id(self)], len(self.dataset)), 0
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


def set_randomness(now: Now) -> None:
    """Key the random numbers of every sample."""
    turns: Counter[int] = Counter()
    passes: dict[int, Passes] = {}
    original: Any = fetch._MapDatasetFetcher.fetch

    def count(loader: Any, _: LoaderPass) -> None:
        # Not the number of passes: a progress bar may begin one that it leaves at once.
        known = passes.setdefault(id(loader.dataset), Passes(now.backwards))
        turns[id(loader.dataset)] = known.turn(now.backwards)

    @wraps(original)
    def fetched(self: Any, index: Any) -> Any:
        data, turn = self.dataset, turns[id(self.dataset)]
        now.fetching = True
        try:
            at_once = hasattr(data, "__getitems__") and not isinstance(data, Subset)
            if not self.auto_collation or at_once:
                seed(key("fetch", turn, str(index)))
                return original(self, index)
            found = []
            for i in index:
                seed(key("sample", turn, str(base(data, i))))
                found.append(data[i])
            return self.collate_fn(found)
        finally:
            now.fetching = False

    following: Any = fetch._IterableDatasetFetcher.fetch
    states: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @wraps(following)
    def streamed(self: Any, index: Any) -> Any:
        outside = state()
        if self not in states:
            seed(key("stream", turns[id(self.dataset)]))
            states[self] = state()
        restore(states[self])
        now.fetching = True
        try:
            return following(self, index)
        finally:
            now.fetching = False
            states[self] = state()
            restore(outside)

    now.recorder.on_pass.append(count)
    setattr(fetch._IterableDatasetFetcher, "fetch", streamed)  # noqa: B010
    setattr(fetch._MapDatasetFetcher, "fetch", fetched)  # noqa: B010


def base(data: Any, index: Any) -> Any:
    """Return the index in the data set behind subsets."""
    while isinstance(data, Subset):
        data, index = data.dataset, data.indices[index]
    return index
