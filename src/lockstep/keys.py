"""Keys: numbers that look random but depend only on their parts, such as seed and epoch.

The finaliser of splitmix64 (Steele et al. 2014) scrambles the 64 bits of a number, or of every
element of an int64 tensor.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def key(*parts: int | str) -> int:
    """Return one 63-bit key for several parts.

    >>> key(0, 7, "flip") == key(0, 7, "flip"), key(0, 7) == key(7, 0)
    (True, False)
    """
    state = 0
    for part in parts:
        number = _number(part) if isinstance(part, str) else part
        # `_mix`, written out: small models take a step in less time than a hundred calls.
        x = ((state ^ (number & _MASK)) + GOLDEN) & _MASK
        x = ((x ^ (x >> 30)) * _FIRST) & _MASK
        x = ((x ^ (x >> 27)) * _SECOND) & _MASK
        state = x ^ (x >> 31)
    return state >> 1


@lru_cache
def _number(word: str) -> int:
    return zlib.crc32(word.encode())


def signed_key(*parts: int | str) -> int:
    """Return the key in the upper 63 bits of a signed number, as int64 tensors need it."""
    return signed(key(*parts) << 1)


def _mix(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * _FIRST) & _MASK
    x = ((x ^ (x >> 27)) * _SECOND) & _MASK
    return x ^ (x >> 31)


def mixed(x: Tensor) -> Tensor:
    """Scramble every element; the upper bits are the most random."""
    x = (x ^ shifted(x, 30)) * signed(_FIRST)
    return (x ^ shifted(x, 27)) * signed(_SECOND)


def signed(x: int) -> int:
    """Return 64 bits as a signed number (two's complement), as int64 tensors multiply.

    >>> signed(2**64 - 1)
    -1
    """
    x &= _MASK
    return x - (1 << 64) if x >> 63 else x


def shifted(x: Tensor, bits: int) -> Tensor:
    """Shift to the right and fill with zeros; torch's own shift copies the sign."""
    return x >> bits & ((1 << (64 - bits)) - 1)
