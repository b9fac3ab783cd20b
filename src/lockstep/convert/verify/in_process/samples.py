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
from torch import Tensor
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
            given = list(found)
            batch = self.collate_fn(found)
            now.order = collated(given, batch)
            return batch
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


def collated(samples: list[Any], batch: Any) -> list[int] | None:
    """Return which sample each row of a batch holds; None if they are in order, or not certain.

    >>> collated([torch.ones(2), torch.zeros(3)], torch.tensor([[0.0, 0, 0], [1, 1, 0]]))
    [1, 0]
    """
    for field, whole in _fields(samples, batch):
        if all(_holds(row, one) for row, one in zip(whole, field, strict=True)):
            return None
        found: list[int] = []
        for row in whole:
            fits = [n for n, one in enumerate(field) if n not in found and _holds(row, one)]
            if not fits:
                break
            # The longest one: a shorter one may be the beginning of another.
            found.append(max(fits, key=lambda n: (field[n].numel(), -n)))
        if len(found) == len(field):
            return found
    return None


def _fields(samples: list[Any], batch: Any) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Yield the tensors of all samples with the tensor of the batch that may hold them."""
    first = samples[0] if samples else None
    names: list[Any] = [None]
    if isinstance(first, tuple | list):
        names = list(range(len(first)))
    elif isinstance(first, dict):
        names = list(first)
    if isinstance(batch, Tensor):
        wholes = [batch]
    else:
        inner = list(batch.values()) if isinstance(batch, dict) else batch
        wholes = (
            [x for x in inner if isinstance(x, Tensor)] if isinstance(inner, tuple | list) else []
        )
    for name in names:
        field = [one if name is None else one[name] for one in samples]
        if not all(isinstance(one, Tensor) and one.dim() for one in field):
            continue
        for whole in wholes:
            if whole.dim() and len(whole) == len(samples) and whole.dtype == field[0].dtype:
                yield field, whole


def _holds(row: Tensor, one: Tensor) -> bool:
    """Return whether the row of a batch begins with a sample."""
    if row.dim() != one.dim() or any(a < b for a, b in zip(row.shape, one.shape, strict=True)):
        return False
    return torch.equal(row[tuple(slice(length) for length in one.shape)], one)


def base(data: Any, index: Any) -> Any:
    """Return the index in the data set behind subsets."""
    while isinstance(data, Subset):
        data, index = data.dataset, data.indices[index]
    return index
