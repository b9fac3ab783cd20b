"""Measure what rounding explains: how far apart one rounding of the first weights leads two runs.

A fixed tolerance does not work: Adam turns gradients that are mere rounding into steps of full
length, and some losses cancel almost all they add up.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from statistics import median

from lockstep.convert.verify.runs import Run

FACTOR = 16.0
"""How many times as far as the moved run a correct run may be from the original.

Seven correct pairs on 2 to 4 ranks reached 1.2 times. A U-Net with batch norm and RMSprop reached
25 times: such runs are compared again in float64.
"""
EPS = 2.0**-23
"""One rounding of a number near 1 in float32."""
MILLIONTH = 1e-6
"""In float64, the share of what training has changed that needs no other explanation."""
EARLY = 3
"""The number of first losses that share a bound, since a single one may agree by chance."""
AHEAD = 1
"""How many steps earlier than the moved run a run may reach the point where rounding is decisive.

There a ReLU or a maximum takes another branch, and everything after it differs.
"""


class Bounds:
    """Bounds for every weight after every step, and for every loss."""

    def __init__(self, original: Run, nudged: Run, *, double: bool = False) -> None:
        self._least = MILLIONTH if double else 0.0
        found: dict[tuple[int, int], list[float]] = {}
        self._moved: dict[tuple[int, int], list[tuple[float, int, float]]] = {
            (e["optimizer"], e["step"]): e.get("moved") or [] for e in nudged.steps
        }
        so_far: dict[int, list[float]] = {}
        for event in nudged.steps:
            tensors = event.get("tensors", [])
            scales = [gap / rounding for _, gap, rounding, _ in tensors if rounding]
            # A small tensor may not move at all by chance: allow it as much as others.
            typical = median(scales) if scales else 0.0
            moved = [max(gap, typical * rounding) for _, gap, rounding, _ in tensors]
            before = so_far.get(event["optimizer"], [0.0] * len(moved))
            so_far[event["optimizer"]] = [
                # A group of parameters may join later.
                max(a, b)
                for a, b in zip_longest(moved, before, fillvalue=0.0)
            ]
            found[event["optimizer"], event["step"]] = so_far[event["optimizer"]]
        self._weights = {
            (optimizer, step): found.get((optimizer, step + AHEAD), moved)
            for (optimizer, step), moved in found.items()
        }
        self._losses: list[float] = []
        ours, theirs = original.losses(), nudged.losses()
        gaps = [abs(a - b) for a, b in zip(ours, theirs, strict=False)]
        for number, loss in enumerate(ours):
            apart = max(gaps[: max(number + 1 + AHEAD, EARLY)], default=0.0)
            self._losses.append(FACTOR * (apart + EPS * abs(loss)))

    def weights(self, optimizer: int, step: int, rounding: list[float]) -> list[float]:
        """Return the bounds for all tensors of an optimizer after a step."""
        moved = self._weights.get((optimizer, step), [math.inf] * len(rounding))
        # Parameters that are trained later have no bound of their own before that.
        moved = moved + [max(moved, default=math.inf)] * (len(rounding) - len(moved))
        # What was added to a weight so far is rounded as well, also where the weight is near 0. A
        # gradient may be nothing but rounding, such as that of a bias before batch norm.
        known = self._moved.get((optimizer, step), [])
        typical = sum(total for total, _, _ in known) / max(1, sum(size for _, size, _ in known))
        ways = [max(total / max(1, size), typical) for total, size, _ in known]
        ways += [typical] * (len(rounding) - len(ways))
        share = max((self._least, *(FACTOR * eps for _, _, eps in known)))
        each = zip(moved, rounding, ways, strict=False)
        return [FACTOR * gap + one + share * way for gap, one, way in each]

    def explained(self, optimizer: int, step: int, bounds: list[float]) -> float:
        """Return the share of what training has changed that would pass as rounding."""
        moved = self._moved.get((optimizer, step), [])
        whole = sum(total for total, _, _ in moved)
        passes = sum(
            min(total, bound * size) for (total, size, _), bound in zip(moved, bounds, strict=False)
        )
        return passes / whole if whole else 0.0

    def loss(self, number: int) -> float:
        """Return the bound for the loss of a backward."""
        return self._losses[number]
