"""Apply layer-wise optimizers to a stack, where each layer of each model is a parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.labs.lab3_scale.model_stack import Stack

Maker = Callable[..., torch.optim.Optimizer]


class Members:
    """A torch optimizer over slices of the stack, which share its memory.

    The norm of a stacked weight would mix all models, so every layer of every model must be a
    separate parameter. A single optimizer still updates them all in few calls.
    """

    def __init__(self, stack: Stack, make: Maker, rates: Tensor) -> None:
        """`rates` has one rate per model; `make` gets the groups of parameters."""
        self.slices = [[_slice(w, m) for w in stack.trained()] for m in range(len(stack))]
        groups: list[dict[str, Any]] = [
            {"params": own, "lr": rate}
            for own, rate in zip(self.slices, rates.tolist(), strict=True)
        ]
        self.optimizer = make(groups)

    @torch.no_grad()
    def __call__(self, step: int, gradients: list[Tensor]) -> None:
        """Take one step of every model."""
        for member, own in enumerate(self.slices):
            for p, gradient in zip(own, gradients, strict=True):
                p.grad = gradient[member].view_as(p)
        self.optimizer.step()


def _slice(weight: Tensor, member: int) -> torch.nn.Parameter:
    """Return one model's weight, or its bias as a vector, in the same memory."""
    own = weight.detach()[member]
    return torch.nn.Parameter(own[0] if len(own) == 1 else own)
