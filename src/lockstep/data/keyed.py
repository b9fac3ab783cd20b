"""Randomness keyed by what it belongs to, never by the process that draws it.

A counter-based generator: the number for a key is a hash of the key (the finaliser of splitmix64,
Steele et al. 2014). So sample 1234 in epoch 7 gets the same numbers on every replica, in every
worker and after a resume, and all samples of a batch draw at once on the device.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key(*parts: int | str) -> int:
    """One 63-bit key from several parts.

    >>> key(0, 7, "flip") == key(0, 7, "flip"), key(0, 7) == key(7, 0)
    (True, False)
    """
    state = 0
    for part in parts:
        number = zlib.crc32(part.encode()) if isinstance(part, str) else part
        state = _mix((state ^ (number & _MASK)) + _GOLDEN)
    return state >> 1


def _mix(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * _FIRST) & _MASK
    x = ((x ^ (x >> 27)) * _SECOND) & _MASK
    return x ^ (x >> 31)


class SampleKeys:
    """The keys of a batch of samples in one epoch."""

    def __init__(self, seed: int, epoch: int, indices: Tensor) -> None:
        """`indices` are the samples' numbers in the data set, on the device of the batch."""
        self.seed, self.epoch, self.indices = seed, epoch, indices

    def uniform(self, purpose: str) -> Tensor:
        """One number in [0, 1) for each sample; another `purpose` draws other numbers."""
        base = _signed(key(self.seed, self.epoch, purpose) << 1)
        x = (self.indices + 1) * _signed(_GOLDEN) ^ base
        x = (x ^ _shift(x, 30)) * _signed(_FIRST)
        x = (x ^ _shift(x, 27)) * _signed(_SECOND)
        # 24 bits are what a float32 holds without rounding up to 1.
        return (x >> 40 & 0xFFFFFF).to(torch.float32) * 2.0**-24

    def integers(self, purpose: str, high: int) -> Tensor:
        """One whole number in [0, high) for each sample."""
        return (self.uniform(purpose) * high).long()


def _signed(x: int) -> int:
    """The two's complement of 64 bits, as int64 tensors multiply."""
    x &= _MASK
    return x - (1 << 64) if x >> 63 else x


def _shift(x: Tensor, bits: int) -> Tensor:
    """A shift to the right that brings in zeros: torch's own copies the sign."""
    return x >> bits & ((1 << (64 - bits)) - 1)
