"""Optimizers that look at whole layers, on a stack: each model's weights are parameters of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.labs.lab3_scale.model_stack import Stack

Maker = Callable[..., torch.optim.Optimizer]


class Members:
    """An optimizer of torch's kind over slices of the stack, which share its memory.

    The length of a stacked weight would be that of all models together: a model's layer must be a
    parameter of its own. All of them are still one optimizer, which updates them in few calls.
    """

    def __init__(self, stack: Stack, make: Maker, rates: Tensor) -> None:
        """`rates` of the models; `make` is called with groups of parameters."""
        self.slices = [[_slice(w, m) for w in stack.trained()] for m in range(len(stack))]
        groups: list[dict[str, Any]] = [
            {"params": own, "lr": rate}
            for own, rate in zip(self.slices, rates.tolist(), strict=True)
        ]
        self.optimizer = make(groups)

    @torch.no_grad()
    def __call__(self, step: int, gradients: list[Tensor]) -> None:
        """One step of every model."""
        for member, own in enumerate(self.slices):
            for p, gradient in zip(own, gradients, strict=True):
                p.grad = gradient[member].view_as(p)
        self.optimizer.step()


def _slice(weight: Tensor, member: int) -> torch.nn.Parameter:
    """One model's weight, or its bias as the vector that it is; the same memory."""
    own = weight.detach()[member]
    return torch.nn.Parameter(own[0] if len(own) == 1 else own)
