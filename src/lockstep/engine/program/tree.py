"""Add the gradients of a replica's shards in one fixed binary tree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Gradients = list[Tensor | None]
"""The gradient of each parameter of an optimizer; None for a parameter that was not used."""


class ShardTree:
    """Adds gradients shard by shard, as a binary counter adds bits.

    The shards of a replica form a whole subtree of the tree over all shards. A parameter counts as
    zero in a shard that does not use it, and so does a shard without samples.
    """

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        self.waiting: list[tuple[int, Gradients]] = []
        """Sums of finished subtrees, each with its level, which wait for their neighbour."""

    def add(self, gradients: Gradients | None) -> None:
        """Add the gradients of the next shard; None for a shard without samples."""
        nothing: Gradients = [None] * self.parameters
        total = nothing if gradients is None else gradients
        level = 0
        while self.waiting and self.waiting[-1][0] == level:
            total = _sum(self.waiting.pop()[1], total)
            level += 1
        self.waiting.append((level, total))

    def total(self) -> Gradients:
        """Return the sum over all shards; their number must be a power of two."""
        assert len(self.waiting) == 1, "a replica has 1, 2, 4, 8 ... shards"
        return self.waiting.pop()[1]


def _sum(left: Gradients, right: Gradients) -> Gradients:
    """Add in the memory of the left one."""
    pairs = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    if pairs:
        torch._foreach_add_([a for a, _ in pairs], [b for _, b in pairs])
    return [b if a is None else a for a, b in zip(left, right, strict=True)]


def take_gradients(parameters: Sequence[Tensor]) -> Gradients:
    """Return the gradients that backward has left, and leave none."""
    found = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    return found


def present(gradients: Gradients) -> list[Tensor]:
    """Return the gradients that there are."""
    return [gradient for gradient in gradients if gradient is not None]
