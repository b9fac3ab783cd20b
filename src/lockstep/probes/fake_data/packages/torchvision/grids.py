"""Grids of images."""

from __future__ import annotations

import math
from typing import Any

import torch
from PIL import Image
from torch import Tensor


def make_grid(
    tensor: Tensor | list[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
    **kwargs: Any,
) -> Tensor:
    """Images side by side, `nrow` in a row."""
    images = torch.stack(tensor) if isinstance(tensor, list | tuple) else tensor
    images = images[None] if images.ndim == 2 else images
    images = images[:, None] if images.ndim == 3 and images.shape[0] not in (1, 3) else images
    images = images[None] if images.ndim == 3 else images
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    if normalize:
        low, high = value_range or (float(images.min()), float(images.max()))
        images = ((images.clamp(low, high) - low) / max(high - low, 1e-5)).to(images.dtype)
    if len(images) == 1:
        return images[0]
    columns = min(nrow, len(images))
    rows = math.ceil(len(images) / columns)
    height, width = images.shape[2] + padding, images.shape[3] + padding
    grid = images.new_full((3, rows * height + padding, columns * width + padding), pad_value)
    for number, image in enumerate(images):
        top, left = number // columns * height + padding, number % columns * width + padding
        grid[:, top : top + image.shape[1], left : left + image.shape[2]] = image
    return grid


def save_image(
    tensor: Tensor | list[Tensor], fp: Any, format: str | None = None, **kw: Any
) -> None:
    """A grid, written to a file."""
    grid = make_grid(tensor, **kw).detach().mul(255).add(0.5).clamp(0, 255)
    Image.fromarray(grid.permute(1, 2, 0).to("cpu", torch.uint8).numpy()).save(fp, format=format)
