"""Augment a whole batch at once, on the device, with randomness keyed per sample.

Every function takes images (batch, channels, height, width) and the keys of the samples. Fix other
arguments with functools.partial and put the function into a recipe's `augment`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from lockstep.data.keyed import SampleKeys


def pad_crop(
    images: Tensor, keys: SampleKeys, padding: int = 4, mode: Literal["zero", "reflect"] = "zero"
) -> Tensor:
    """Shift each image by up to `padding` pixels; fill the border with zeros or a reflection."""
    height, width = images.shape[2:]
    top = keys.integers("pad_crop.top", 2 * padding + 1)
    left = keys.integers("pad_crop.left", 2 * padding + 1)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    if mode == "reflect":
        if padding >= min(height, width):
            raise ValueError(
                f"images of {height}x{width} pixels have no reflection {padding} pixels deep: use "
                f"a padding of {min(height, width) - 1} or less"
            )
        # Read places beyond the border from inside it: this needs no padded copy.
        rows, columns = _reflected(rows - padding, height), _reflected(columns - padding, width)
    else:
        images = functional.pad(images, (padding,) * 4)
    batch = torch.arange(len(images), device=images.device)[:, None, None]
    # Indexing around the channels moves them last: the permuted view is in channels_last order.
    return images[batch, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _reflected(places: Tensor, length: int) -> Tensor:
    """Mirror places before the first or after the last; the first and last are not repeated."""
    last = length - 1
    return last - (last - places.abs()).abs()


def flip(images: Tensor, keys: SampleKeys, share: float = 0.5) -> Tensor:
    """Mirror a `share` of the images left to right."""
    mirrored = keys.uniform("flip") < share
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def flip_alternating(images: Tensor, keys: SampleKeys) -> Tensor:
    """Mirror half of the images left to right, and the other half in the next epoch (Jordan 2024).

    Two epochs show both sides of every image. With `flip`, half of the images show one side twice.
    """
    first = keys.uniform("flip_alternating", every_epoch=False) < 0.5
    # No `if`: inside a CUDA graph the epoch is a tensor on the device.
    mirrored = first ^ (keys.epoch % 2 == 1)
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def cutout(images: Tensor, keys: SampleKeys, size: int = 8) -> Tensor:
    """Blank a square of `size` pixels around a random centre (DeVries & Taylor 2017)."""
    height, width = images.shape[2:]
    rows = _inside(keys.integers("cutout.row", height), height, size)
    columns = _inside(keys.integers("cutout.column", width), width, size)
    hole = rows[:, None, :, None] & columns[:, None, None, :]
    return images.masked_fill(hole, 0)


def _inside(centre: Tensor, length: int, size: int) -> Tensor:
    """Return (batch, length): whether a place lies within the window around each centre."""
    offset = torch.arange(length, device=centre.device) - centre[:, None] + size // 2
    return (offset >= 0) & (offset < size)
