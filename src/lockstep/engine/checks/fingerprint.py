"""Hash and compare gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
_PART = 1 << 22


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
        found = [piece for piece in apart if piece is not None]
        tensors = found if together is None else [together, *found]
        if not tensors:
            continue
        for parts in zip(*(_parts(tensor) for tensor in tensors), strict=True):
            rest = parts if together is None else parts[1:]
            total = torch.stack([part.to(parts[0].device) for part in rest]).sum(0) if rest else 0.0
            one = torch.zeros_like(parts[0]) if together is None else parts[0]
            difference += float((one - total).abs().square().sum())
            length += float(one.abs().square().sum())
    return (difference / length) ** 0.5 if length else float(difference > 0)


def sketch(gradients: Sequence[Tensor | None]) -> Tensor:
    """Return a few numbers for each gradient: they are close if the gradients are.

    They are its length, and its products with two fixed waves.
    """
    rows = []
    for gradient in gradients:
        found = torch.zeros(3, dtype=torch.float64)
        start = 0
        for part in () if gradient is None else _parts(gradient):
            values = part.abs() if part.is_complex() else part
            places = torch.arange(start, start + len(part), dtype=torch.float64, device=part.device)
            start += len(part)
            waves = torch.stack([values, torch.cos(places), torch.sin(places * 0.7)])
            found += (waves @ values).cpu()
        found[0] = found[0].sqrt()
        rows.append(found)
    return torch.cat(rows) if rows else torch.zeros(0, dtype=torch.float64)


def _parts(gradient: Tensor) -> Iterator[Tensor]:
    """Yield the values in double precision, a few at a time: a gradient may be large."""
    wide = torch.complex128 if gradient.is_complex() else torch.float64
    for part in gradient.detach().reshape(-1).split(_PART):
        yield part.to(wide)
