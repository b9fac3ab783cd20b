"""Move values by one rounding, to measure how far rounding errors can lead a training apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def moved_by_one_rounding(values: Tensor, signs: Tensor, unit: float, least: float = 0.0) -> Tensor:
    """Return `values` moved up (sign 1) or down (sign -1) by one rounding of relative size `unit`.

    A value whose magnitude is below `least` moves as far as `least` would.
    """
    return values + signs * values.abs().clamp(min=least) * unit
