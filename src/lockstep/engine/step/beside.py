"""Compute gradients beside the training, to check or measure something."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lockstep.engine.program.tree import Gradients, take_gradients


def gradients_beside(loss: Tensor, parameters: Sequence[Tensor]) -> Gradients:
    """Return the gradients of a loss, and leave those of the training as they are.

    It calls backward, not torch.autograd.grad: a kind of activation checkpointing refuses that one.
    """
    kept = take_gradients(parameters)
    try:
        loss.backward()
        return take_gradients(parameters)
    finally:
        for p, gradient in zip(parameters, kept, strict=True):
            p.grad = gradient
