"""Squared lengths of gradients, as they are or as Adam sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

Diagonal = Callable[[Tensor], Tensor | None]
"""Returns what to multiply the gradient of a parameter with, or None for nothing."""


def squared_length(gradients: Sequence[Tensor]) -> Tensor:
    """Return the sum of all squares, on the device and in double precision.

    >>> squared_length([torch.tensor([3.0]), torch.tensor([[4.0]])]).item()
    25.0
    """
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    lengths = torch._foreach_norm(list(gradients))
    return torch.stack([length.double() for length in lengths]).square().sum()


def adam_diagonal(optimizer: torch.optim.Optimizer, *, coming: bool = False) -> Diagonal:
    """Return Adam's scaling 1 / (sqrt(v) + eps), with its correction for the first steps.

    Adam's noise scale is that of the gradient in these units. Gradients of parameters that have not
    been updated yet are not scaled. With `coming`, v is that of the next update, which includes the
    present gradient: this also works before the first update.
    """
    settings = {p: group for group in optimizer.param_groups for p in group["params"]}

    def diagonal(p: Tensor) -> Tensor | None:
        state = optimizer.state.get(p, {})
        group, squares, step = settings[p], state.get("exp_avg_sq"), state.get("step", 0)
        share = 1.0 - group["betas"][1]
        if coming and p.grad is not None:
            now = p.grad.detach().square()
            squares = now.mul_(share) if squares is None else squares.lerp(now, share)
            step = step + 1
        if squares is None:
            return None
        # In double: the first steps of a long memory are a small difference of large numbers.
        correction = 1.0 - group["betas"][1] ** torch.as_tensor(step, dtype=torch.float64)
        root = (squares / correction).sqrt_()
        return root.add_(group["eps"]).reciprocal_()

    return diagonal


def scaled(
    parameters: Sequence[Tensor], gradients: list[Tensor], diagonal: Diagonal | None
) -> list[Tensor]:
    """Return the gradients times the diagonal of their parameters, if there is one."""
    if diagonal is None:
        return gradients
    factors = [diagonal(p) for p in parameters]
    pairs = zip(gradients, factors, strict=True)
    return [g if factor is None else g * factor for g, factor in pairs]


def gradients_of(parameters: Iterable[Tensor]) -> dict[Tensor, Tensor]:
    """Return the gradients of the parameters that have one."""
    found = {}
    for number, p in enumerate(parameters):
        if p.grad is None:
            continue
        if p.grad.is_sparse:
            raise ValueError(
                f"the gradient of parameter {number}, of shape {tuple(p.shape)}, is sparse: the "
                "noise scale needs dense ones. Make its layer with sparse=False, or leave it out."
            )
        found[p] = p.grad.detach()
    return found
