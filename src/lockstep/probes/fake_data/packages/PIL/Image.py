"""Images that were made here. Files cannot be read or written."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Self

import numpy as np


class Resampling(IntEnum):
    """How pixels are found; here it is always the nearest one."""

    NEAREST = 0
    LANCZOS = 1
    BILINEAR = 2
    BICUBIC = 3
    BOX = 4
    HAMMING = 5


class Transpose(IntEnum):
    """Mirrors."""

    FLIP_LEFT_RIGHT = 0
    FLIP_TOP_BOTTOM = 1


NEAREST, LANCZOS, BILINEAR, BICUBIC = 0, 1, 2, 3
ANTIALIAS = LANCZOS
FLIP_LEFT_RIGHT, FLIP_TOP_BOTTOM = Transpose.FLIP_LEFT_RIGHT, Transpose.FLIP_TOP_BOTTOM


class Image:
    """Grey (L) or coloured (RGB) bytes."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height

    @property
    def width(self) -> int:
        """In pixels."""
        return int(self._array.shape[1])

    @property
    def height(self) -> int:
        """In pixels."""
        return int(self._array.shape[0])

    @property
    def mode(self) -> str:
        """What a pixel holds."""
        return "L" if self._array.ndim == 2 else "RGB"

    @property
    def __array_interface__(self) -> Any:
        return self._array.__array_interface__

    def getbands(self) -> tuple[str, ...]:
        """The channels."""
        return tuple(self.mode)

    def copy(self) -> Image:
        """The same."""
        return Image(self._array.copy())

    def convert(self, mode: str | None = None) -> Image:
        """Grey to colour, or back."""
        if mode == "L" and self.mode == "RGB":
            return Image((self._array @ np.array([0.299, 0.587, 0.114])).astype(np.uint8))
        if mode == "RGB" and self.mode == "L":
            return Image(np.repeat(self._array[..., None], 3, axis=2))
        return self.copy()

    def resize(self, size: tuple[int, int], resample: int | None = None, **kwargs: Any) -> Image:
        """To a width and height."""
        width, height = size
        rows = np.arange(height) * self.height // height
        return Image(self._array[rows][:, np.arange(width) * self.width // width])

    def crop(self, box: tuple[int, int, int, int]) -> Image:
        """From left, top to right, bottom."""
        left, top, right, bottom = box
        return Image(self._array[top:bottom, left:right].copy())

    def transpose(self, method: int) -> Image:
        """Mirrored."""
        return Image(np.flip(self._array, 1 if method == FLIP_LEFT_RIGHT else 0).copy())

    def save(self, fp: Any, format: str | None = None, **params: Any) -> None:
        """There is nothing to write it with: it is not kept."""

    def show(self) -> None:
        """Nobody looks."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def fromarray(obj: Any, mode: str | None = None) -> Image:
    """The image that an array shows."""
    array = np.asarray(obj)
    return Image((array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array).copy())


def new(mode: str, size: tuple[int, int], color: Any = 0) -> Image:
    """One colour."""
    width, height = size
    shape = (height, width) if mode == "L" else (height, width, 3)
    return Image(np.broadcast_to(np.asarray(color, np.uint8), shape).copy())


def open(fp: Any, mode: str = "r") -> Image:
    """Cannot be done."""
    raise OSError(f"{fp} cannot be read: pillow is not installed. pip install pillow.")
