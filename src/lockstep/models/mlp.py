"""Fully connected layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def mlp(sizes: Sequence[int] = (784, 128, 10), dropout: float = 0.0) -> nn.Module:
    """Build a perceptron whose layers have `sizes` neurons; it flattens images first.

    >>> sum(p.numel() for p in mlp((4, 3, 2)).parameters())
    23
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        if len(layers) > 1:
            layers += [nn.ReLU(), nn.Dropout(dropout)]
        layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers)
