"""Muon: momentum whose step is made orthogonal (Jordan 2024, kellerjordan.github.io/posts/muon).

A gradient matrix has a few large singular values and many small ones. Muon sets all of them to
about one, so that rare directions are learnt as fast as common ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

# A quintic with a steep slope at 0, to lift small singular values within a few iterations; large
# ones end between 0.7 and 1.2 instead of at 1, which training does not notice (same source).
_FIRST, _THIRD, _FIFTH = 3.4445, -4.7750, 2.0315


def orthogonalised(
    matrices: Tensor, iterations: int = 5, precision: torch.dtype | None = None
) -> Tensor:
    """Return `matrices` (batch, rows, columns) with their singular values brought near one.

    The products of the Newton-Schulz iteration are computed in `precision`; default: their type.

    >>> scaled = orthogonalised(torch.diag(torch.tensor([5.0, 2.0, 0.5]))[None])[0]
    >>> bool((scaled.diagonal() > 0.65).all() and (scaled.diagonal() < 1.25).all())
    True
    """
    # Products of the short side are the small ones.
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    # The norm of all elements is at least the largest singular value: all are now at most 1. What
    # is so small that its square is nothing has no norm.
    least = math.sqrt(torch.finfo(x.dtype).tiny)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=least)
    # Only now, as a small gradient squared may be nothing in low precision.
    x = x.to(precision or x.dtype)
    for _ in range(iterations):
        square = x @ x.mT
        rest = torch.baddbmm(square, square, square, beta=_THIRD, alpha=_FIFTH)
        x = torch.baddbmm(x, rest, x, beta=_FIRST)
    x = x.to(matrices.dtype)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Muon for convolution filters, SGD with momentum for all other parameters.

    A filter bank counts as a matrix with a row for each output channel. Before every step it is
    scaled to rows of length one on average: batch norm makes its length immaterial, and the rate is
    then an angle. Give it the parameters of the whole model; SGD takes `rest` times the rate.
    """

    takes_tensor_rate = True
    """A recorded step may hand the learning rate over as a tensor."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 0.24,
        *,
        momentum: float = 0.6,
        iterations: int = 3,
        rest: float = 7.0,
        rest_momentum: float = 0.85,
        rest_weight_decay: float = 0.0,
    ) -> None:
        """Both momenta are Nesterov's; `rest_weight_decay` is added to the gradient, as in SGD."""
        every = list(params)
        filters = [p for p in every if p.dim() == 4 and p.requires_grad]
        others = [p for p in every if p.dim() != 4 and p.requires_grad]
        groups = [
            {"params": filters, "lr": lr, "momentum": momentum, "iterations": iterations},
            {"params": others, "lr": rest * lr, "momentum": rest_momentum, "iterations": 0}
            | {"weight_decay": rest_weight_decay},
        ]
        # A model may have no filters, or nothing else.
        super().__init__([g for g in groups if g["params"]], {"weight_decay": 0.0})
        # Now, not in the first step: a CUDA graph of it would clear them in every step.
        for p in filters + others:
            self.state[p]["momentum_buffer"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step. It reads nothing from the device, so a CUDA graph can hold it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._step(parameters, group)
        return loss

    def _step(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        buffers = [self.state[p]["momentum_buffer"] for p in parameters]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, gradients)
        updates = list(torch._foreach_add(gradients, buffers, alpha=group["momentum"]))
        if group["iterations"]:
            updates = _orthogonal(updates, group["iterations"])
            lengths = torch._foreach_norm(parameters)
            torch._foreach_div_(lengths, [math.sqrt(len(p)) for p in parameters])
            # A bank of zeros stays zero.
            torch._foreach_clamp_min_(lengths, torch.finfo(lengths[0].dtype).tiny)
            torch._foreach_div_(parameters, lengths)
        # Not `alpha=-lr`: the rate may be a tensor on the device.
        torch._foreach_mul_(updates, group["lr"])
        torch._foreach_sub_(parameters, updates)


def _orthogonal(updates: list[Tensor], iterations: int) -> list[Tensor]:
    """Make each update orthogonal as a matrix; those of one shape share one product."""
    alike = defaultdict(list)
    for number, update in enumerate(updates):
        alike[len(update), update[0].numel()].append(number)
    done: dict[int, Tensor] = {}
    for numbers in alike.values():
        stack = torch.stack([updates[number].flatten(1) for number in numbers])
        # The result is coarse by design: bf16 loses nothing that counts, where it is fast.
        fast = stack.is_cuda and stack.dtype == torch.float32
        results = orthogonalised(stack, iterations, torch.bfloat16 if fast else None)
        for number, result in zip(numbers, results, strict=True):
            done[number] = result.reshape(updates[number].shape)
    return [done[number] for number in range(len(updates))]


OPTIMIZER = Muon
