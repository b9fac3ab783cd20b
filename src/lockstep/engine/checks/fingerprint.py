"""Hash and compare gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.keys import GOLDEN, signed

TOLERANCE = 2e-3
"""How far gradients of two divisions may be apart, as a share, and still differ by rounding."""
ROUNDINGS = 8
"""Roundings in each layer whose order or number may differ: products, sums, norm, activation."""
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""The whole numbers of as many bytes as an element has."""
_ROW = 256


def fingerprint(tensor: Tensor) -> Tensor:
    """Return a 64-bit hash of a tensor's bits, on its device.

    Each row of 256 elements has its own odd factor, so the hash sees where a value stands.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.stride() != (1,):
        # A single element counts as contiguous whatever its stride is.
        flat = flat.new_empty(flat.shape).copy_(flat)
    # Eight bytes at a time, which is faster than to widen every element.
    each = 8 // flat.element_size()
    even = len(flat) // each * each if flat.storage_offset() * flat.element_size() % 8 == 0 else 0
    wide, rest = flat[:even].view(torch.int64), flat[even:].view(BITS[flat.element_size()])
    whole = len(wide) // _ROW * _ROW
    total = wide[whole:].sum()
    if len(rest):
        total = total + rest.sum(dtype=torch.int64)
    if not whole:
        return total
    rows = wide[:whole].view(-1, _ROW).sum(1)
    factors = torch.arange(1, 2 * len(rows) + 1, 2, device=flat.device)
    return (rows * factors).sum() * signed(GOLDEN) + total


def row_fingerprints(rows: Tensor) -> Tensor:
    """Return a 64-bit hash of each row of a matrix."""
    if rows.is_complex():
        rows = torch.view_as_real(rows).flatten(1)
    bits = rows.contiguous().view(BITS[rows.element_size()]).long()
    factors = torch.arange(1, 2 * bits.shape[1] + 1, 2, device=bits.device)
    return (bits * factors * signed(GOLDEN)).sum(1)


def relative_distance(
    whole: Sequence[Tensor | None], pieces: Sequence[Sequence[Tensor | None]]
) -> float:
    """Return the distance from a gradient to the sum of its pieces, as a share of its length."""
    difference = length = 0.0
    for together, *apart in zip(whole, *pieces, strict=True):
        found = [_wide(piece) for piece in apart if piece is not None]
        total = torch.stack(found).sum(0) if found else torch.zeros((), dtype=torch.float64)
        one = torch.zeros_like(total) if together is None else _wide(together)
        difference += float((one - total.to(one.device)).abs().square().sum())
        length += float(one.abs().square().sum())
    return (difference / length) ** 0.5 if length else float(difference > 0)


def _wide(gradient: Tensor) -> Tensor:
    return gradient.to(torch.complex128 if gradient.is_complex() else torch.float64)
