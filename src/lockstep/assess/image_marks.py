"""Marks of an image: numbers that identify it whatever its scale and shift."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

WIDTH = 16
"""The number of marks per image."""


def marks(images: Tensor) -> Tensor:
    """Return the marks of each image, which do not change when a channel is scaled or shifted."""
    rows = images.detach().float().flatten(2)
    rows = rows - rows.mean(2, keepdim=True)
    rows = rows / rows.std(2, keepdim=True).clamp_min(1e-6)
    rows = rows.flatten(1)
    return rows @ _directions(rows.shape[1], rows.device) / rows.shape[1] ** 0.5


@cache
def _directions(size: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, WIDTH, generator=generator).to(device)
