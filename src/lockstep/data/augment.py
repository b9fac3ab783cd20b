"""Augmentation of a whole batch at once, on the device, with randomness keyed per sample.

Every function takes images (batch, channels, height, width) and the samples' keys. Fix its other
arguments with functools.partial and put it into a recipe's `augment`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from lockstep.data.keyed import SampleKeys


def pad_crop(images: Tensor, keys: SampleKeys, padding: int = 4) -> Tensor:
    """Shift each image by up to `padding` pixels; zeros come in at the border."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (padding,) * 4)
    top = keys.integers("pad_crop.top", 2 * padding + 1)
    left = keys.integers("pad_crop.left", 2 * padding + 1)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    # Indexing around the channels moves them last: the permuted view is in channels_last order.
    return padded[batch, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def flip(images: Tensor, keys: SampleKeys, share: float = 0.5) -> Tensor:
    """Mirror a `share` of the images left to right."""
    mirrored = keys.uniform("flip") < share
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def cutout(images: Tensor, keys: SampleKeys, size: int = 8) -> Tensor:
    """Blank a square of `size` pixels around a random centre (DeVries & Taylor 2017)."""
    height, width = images.shape[2:]
    rows = _inside(keys.integers("cutout.row", height), height, size)
    columns = _inside(keys.integers("cutout.column", width), width, size)
    hole = rows[:, None, :, None] & columns[:, None, None, :]
    return images.masked_fill(hole, 0)


def _inside(centre: Tensor, length: int, size: int) -> Tensor:
    """(batch, length): whether a place lies in the window of `size` around each centre."""
    offset = torch.arange(length, device=centre.device) - centre[:, None] + size // 2
    return (offset >= 0) & (offset < size)
