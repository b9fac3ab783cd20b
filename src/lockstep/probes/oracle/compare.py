"""Two gradients of one step: whether they differ by more than rounding, and where."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

FLOOR = 0.01
"""A parameter's difference is measured against its gradient, or this share of the whole one."""


def compared(
    names: list[str],
    ranks: list[Tensor | None],
    one: list[Tensor | None],
    autocast: set[torch.dtype],
) -> dict[str, Any]:
    """Where and how much the ranks' gradient differs from that of one process."""
    bound = tolerance(one, autocast)
    both = list(zip(names, ranks, one, strict=True))
    pairs = [
        (name, a.double().cpu(), b.double().cpu())
        for name, a, b in both
        if a is not None and b is not None
    ]
    whole = math.sqrt(sum(float(b.square().sum()) for _, _, b in pairs))
    differences = [
        (name, float((a - b).norm()) / max(float(b.norm()), FLOOR * whole, 1e-300))
        for name, a, b in pairs
    ]
    apart: list[tuple[str, float | None]] = [
        # Not `>`: a difference may be no number.
        *((name, difference) for name, difference in differences if not difference <= bound),
        *((name, None) for name, a, b in both if (a is None) != (b is None)),
    ]
    first, difference = apart[0] if apart else (None, None)
    inner = sum(float((a * b).sum()) for _, a, b in pairs)
    length = math.sqrt(sum(float(a.square().sum()) for _, a, _ in pairs))
    return {
        "verdict": "differs" if apart else "agrees",
        "tolerance": bound,
        "worst": max([0.0, *(difference for _, difference in differences)]),
        "first": first,
        "difference": difference,
        "ratio": inner / whole**2 if whole else None,
        "cosine": inner / (whole * length) if whole and length else None,
        "parameters": len(pairs),
    }


def tolerance(gradients: list[Tensor | None], autocast: set[torch.dtype]) -> float:
    """The relative difference that rounding explains: half of the digits may be lost on the way."""
    kinds = {g.dtype for g in gradients if g is not None and g.dtype.is_floating_point}
    return math.sqrt(max((torch.finfo(kind).eps for kind in kinds | autocast), default=1e-7))
