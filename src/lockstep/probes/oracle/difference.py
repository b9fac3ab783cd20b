"""Compare two gradients of one step: where they differ by more than rounding."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

FLOOR = 0.01
"""A parameter's difference is relative to its gradient, or to this share of the whole one."""
LUCK = 4.0
"""Factor on the effect of rounding the weights: another rounding may change more."""


def compared(
    names: list[str],
    ranks: list[Tensor | None],
    one: list[Tensor | None],
    autocast: set[torch.dtype],
    nudged: list[Tensor | None] | None = None,
) -> dict[str, Any]:
    """Return where and how much the ranks' gradient differs from that of one process.

    `nudged` is the gradient of one process whose weights are off by a rounding.
    """
    both = list(zip(names, ranks, one, nudged or one, strict=True))
    pairs = [
        (name, a.double().cpu(), b.double().cpu(), None if n is None else n.double().cpu())
        for name, a, b, n in both
        if a is not None and b is not None
    ]
    whole = math.sqrt(sum(float(b.square().sum()) for _, _, b, _ in pairs))

    def relative(a: Tensor, b: Tensor) -> float:
        return float((a - b).norm()) / max(float(b.norm()), FLOOR * whole, 1e-300)

    # The largest of all parameters, because rounding hits any of them by chance.
    noise = [relative(n, b) for _, _, b, n in pairs if n is not None]
    bound = max([tolerance(one, autocast), *(LUCK * value for value in noise)])
    differences = [(name, relative(a, b)) for name, a, b, _ in pairs]
    apart: list[tuple[str, float | None]] = [
        # Not `>`: a difference may be NaN.
        *((name, difference) for name, difference in differences if not difference <= bound),
        *((name, None) for name, a, b, _ in both if (a is None) != (b is None)),
    ]
    first, difference = apart[0] if apart else (None, None)
    inner = sum(float((a * b).sum()) for _, a, b, _ in pairs)
    length = math.sqrt(sum(float(a.square().sum()) for _, a, _, _ in pairs))
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
    """Return the relative difference that rounding explains: half of the digits may be lost."""
    kinds = {g.dtype for g in gradients if g is not None and g.dtype.is_floating_point}
    return math.sqrt(max((torch.finfo(kind).eps for kind in kinds | autocast), default=1e-7))
