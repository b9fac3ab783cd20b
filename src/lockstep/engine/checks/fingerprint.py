"""Hash and compare gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lockstep.keys import GOLDEN, signed

TOLERANCE = 2e-3
"""How far gradients of two divisions may be apart, as a share, and still differ by rounding."""
_BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
_ROW = 256


def fingerprint(tensor: Tensor) -> Tensor:
    """Return a 64-bit hash of a tensor's bits, on its device.

    Each row of 256 elements has its own odd factor, so the hash sees where a value stands.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.detach().contiguous().reshape(-1)
    bits = flat.view(_BITS[flat.element_size()])
    whole = len(bits) // _ROW * _ROW
    rows = bits[:whole].view(-1, _ROW).sum(1, dtype=torch.int64)
    factors = torch.arange(1, 2 * len(rows) + 1, 2, device=bits.device)
    return (rows * factors).sum() * signed(GOLDEN) + bits[whole:].sum(dtype=torch.int64)


def relative_distance(
    whole: Mapping[Tensor, Tensor], pieces: Sequence[Mapping[Tensor, Tensor]], of: Sequence[Tensor]
) -> float:
    """Return the distance from a gradient to the sum of its pieces, as a share of its length."""
    difference = length = 0.0
    for p in of:
        zero = torch.zeros((), dtype=torch.float64, device=p.device)
        together = _wide(whole[p]) if p in whole else zero
        apart = sum((_wide(piece[p]) for piece in pieces if p in piece), zero)
        difference += float((together - apart).abs().square().sum())
        length += float(together.abs().square().sum())
    return (difference / length) ** 0.5 if length else float(difference > 0)


def _wide(gradient: Tensor) -> Tensor:
    return gradient.to(torch.complex128 if gradient.is_complex() else torch.float64)
