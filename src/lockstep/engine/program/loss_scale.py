"""Scale the loss of fp16 training, so that small gradients do not become zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

START, GROW_AFTER, MOST = 65_536.0, 2000, 2.0**24
"""The first scale, and the good steps after which it doubles, as in torch.amp.GradScaler."""


class LossScale:
    """A power of two by which losses are multiplied before backward, and gradients divided.

    Multiplying by a power of two rounds nothing, so the scale does not change the bits of a
    gradient that fp16 can hold. All replicas see the same sum of gradients, so all of them change
    the scale alike.
    """

    def __init__(self) -> None:
        self.value = START
        self.good = 0
        """Steps since the scale last changed."""
        self.skipped = 0
        """Steps without an update, because a gradient had become infinite or NaN."""

    def accepts(self, gradients: list[Tensor]) -> bool:
        """Undo the scale in place; return whether all gradients are finite, and adapt the scale."""
        torch._foreach_mul_(gradients, 1.0 / self.value)
        norms = torch._foreach_norm(gradients, float("inf"))
        if bool(torch.stack([norm.float() for norm in norms]).isfinite().all()):
            self.good += 1
            if self.good == GROW_AFTER and self.value < MOST:
                self.value, self.good = 2.0 * self.value, 0
            return True
        self.value, self.good = max(1.0, self.value / 2.0), 0
        self.skipped += 1
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        return {"value": self.value, "good": self.good, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self.value, self.good = float(state["value"]), int(state["good"])
        self.skipped = int(state["skipped"])
