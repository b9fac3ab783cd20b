"""Key the random numbers that a data set draws for a sample by its index and the pass.

A stream has no index: all ranks draw the same for all of its samples, and each takes its part.
"""

from __future__ import annotations

from collections import Counter
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import Subset
from torch.utils.data._utils import fetch

from lockstep.convert.verify.in_process.seeds import restore, seed, state
from lockstep.convert.verify.in_process.training_state import Now
from lockstep.keys import key
from lockstep.probes.recorder import LoaderPass


def install(now: Now) -> None:
    """Key the random numbers of every sample."""
    turns: Counter[int] = Counter()
    original: Any = fetch._MapDatasetFetcher.fetch

    def count(loader: Any, _: LoaderPass) -> None:
        turns[id(loader.dataset)] += 1

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
