"""Shrink the lengths given to random_split if they add up to those of the real data."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import torch.utils.data

from lockstep.probes.patching import replaces


def install() -> None:
    """Patch random_split."""

    @replaces("random_split", torch.utils.data, torch.utils.data.dataset)
    def random_split(original: Any, dataset: Any, lengths: Any, *args: Any, **kwargs: Any) -> Any:
        _, count, real = getattr(dataset, "_lockstep", (None, 0, 0))
        if count and real and sum(lengths) == real:
            lengths = scaled(lengths, count)
        return original(dataset, lengths, *args, **kwargs)


def scaled(lengths: list[int], count: int) -> list[int]:
    """Divide `count` into the same shares as `lengths`.

    >>> scaled([50_000, 10_000], 2048)
    [1706, 342]
    """
    total = sum(lengths)
    ends = [end * count // total for end in accumulate(lengths, initial=0)]
    return [b - a for a, b in pairwise(ends)]
