"""Add the gradients of a replica's shards in one fixed binary tree."""

from __future__ import annotations

import torch
from torch import Tensor

Gradients = dict[Tensor, Tensor]
"""The gradient of each parameter that has one."""


class ShardTree:
    """Adds gradients shard by shard, as a binary counter adds bits.

    The shards of a replica form a whole subtree of the tree over all shards. A parameter counts as
    zero in a shard that does not use it, and so does a shard without samples.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Gradients]] = []
        """Sums of finished subtrees, each with its level, which wait for their neighbour."""

    def add(self, gradients: Gradients) -> None:
        """Add the gradients of the next shard."""
        level = 0
        while self.waiting and self.waiting[-1][0] == level:
            gradients = _sum(self.waiting.pop()[1], gradients)
            level += 1
        self.waiting.append((level, gradients))

    def total(self) -> Gradients:
        """Return the sum over all shards; their number must be a power of two."""
        assert len(self.waiting) == 1, "a replica has 1, 2, 4, 8 ... shards"
        return self.waiting.pop()[1]


def _sum(left: Gradients, right: Gradients) -> Gradients:
    """Add in the memory of one of the two."""
    both = [p for p in left if p in right]
    if both:
        torch._foreach_add_([left[p] for p in both], [right[p] for p in both])
    for p, gradient in right.items():
        left.setdefault(p, gradient)
    return left


def take_gradients(parameters: list[Tensor]) -> Gradients:
    """Return the gradients that backward has left, and leave none."""
    found = {}
    for p in parameters:
        if p.grad is not None:
            found[p] = p.grad
            p.grad = None
    return found
