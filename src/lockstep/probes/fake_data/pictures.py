"""Pictures from a formula: noise on a coarse pattern for each class, which a model can learn.

Everything follows from the names and numbers given, without the script's random state, so that
every process gets the same pictures.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

TRAIN, TEST = 2048, 512
"""How many samples: enough for six batches of 256, and quick to make."""
COARSE = 4
Shape = tuple[int, int, int]
"""Height, width, channels."""


def classes_of(name: str, part: str, count: int, classes: int) -> Any:
    """Return a class for each sample: all equally often, in a mixed order."""
    order = np.argsort(_random(name, part, "classes").random_raw(count), kind="stable")
    return (np.arange(count) % classes)[order].astype(np.int64)


def pictures(name: str, part: str, shape: Shape, classes: Any) -> Any:
    """Return all pictures of a part, as bytes: sample, height, width, channel."""
    # The patterns are the same in all parts.
    found = np.stack([_pattern(name, shape, kind) for kind in np.unique(classes)])
    place = np.searchsorted(np.unique(classes), classes)
    return found[place] + _noise((len(classes), *shape), name, part)


def picture(name: str, part: str, shape: Shape, kind: int, index: int) -> Any:
    """Return one picture."""
    return _pattern(name, shape, kind) + _noise(shape, name, part, index)


def _pattern(name: str, shape: Shape, kind: int) -> Any:
    height, width, channels = shape
    coarse = _bytes((COARSE, COARSE, channels), name, "pattern", int(kind)) >> 1
    rows, columns = np.arange(height) * COARSE // height, np.arange(width) * COARSE // width
    return coarse[rows][:, columns]


def _noise(shape: tuple[int, ...], *key: str | int) -> Any:
    return _bytes(shape, *key) >> 1


def _bytes(shape: tuple[int, ...], *key: str | int) -> Any:
    size = int(np.prod(shape))
    words = _random(*key).random_raw(-(-size // 8))
    return words.view(np.uint8)[:size].reshape(shape)


def _random(*key: str | int) -> Any:
    return np.random.Philox(key=zlib.crc32(repr(key).encode()))
