"""The second version of the transforms: the same, and two more names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import *  # noqa: F403
from . import functional as functional
from .functional import convert_image_dtype, pil_to_tensor


class ToImage:
    """An image as a tensor of bytes."""

    def __call__(self, img: Any) -> Tensor:
        """Change an image."""
        return img if isinstance(img, Tensor) else pil_to_tensor(img)


class ToDtype:
    """Another type of number; with `scale` also another range."""

    def __init__(self, dtype: torch.dtype, scale: bool = False) -> None:
        self.dtype, self.scale = dtype, scale

    def __call__(self, img: Tensor) -> Tensor:
        """Change a tensor."""
        return convert_image_dtype(img, self.dtype) if self.scale else img.to(self.dtype)
