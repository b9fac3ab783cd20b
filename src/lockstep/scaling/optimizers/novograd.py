"""NovoGrad: gradients divided by a running norm of their layer (Ginsburg et al. 2019, 1905.11286).

Adam keeps a second moment for every weight; NovoGrad keeps one number for every layer, which
takes half of Adam's memory and does not move weights without a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.scaling.optimizers.layerwise import (
    Layers,
    Layerwise,
    Params,
    alike,
    check_betas,
    norms,
    number,
    unless_nothing,
    wide,
)


class NovoGrad(Layerwise):
    """Momentum of `g / (sqrt(v) + eps) + weight_decay * w`, where `v` is the mean of `|g|²`.

    `v` starts as `|g|²` of the first gradient. Vectors are divided by their norms too, as in the
    paper: the rate is meant for gradients of about length one.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        *,
        betas: tuple[float, float] = (0.95, 0.98),
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        adapt: bool | None = None,
    ) -> None:
        """`adapt`: True gives vectors weight decay too, False divides no gradient."""
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        super().__init__(params, defaults | {"eps": eps, "adapt": adapt})

    def _check(self, settings: Mapping[str, Any]) -> None:
        super()._check(settings)
        check_betas(settings["betas"])

    def _begin(self, p: Tensor) -> dict[str, Tensor]:
        return {
            "step": torch.zeros((), device=p.device),
            "momentum_buffer": torch.zeros_like(p),
            "norm_sq": torch.zeros((), device=p.device, dtype=wide(p.dtype)),
        }

    def _update(self, layers: Layers, group: dict[str, Any]) -> None:
        weights, gradients, _, decayed = layers
        (momenta,) = self._states(layers, "momentum_buffer")
        torch._foreach_mul_(momenta, number(group["betas"][0], weights[0]))
        if group["adapt"] is False:
            torch._foreach_add_(momenta, gradients)
        else:
            torch._foreach_addcmul_(momenta, gradients, self._shares(layers, group).unbind())
        if group["weight_decay"] and decayed:
            torch._foreach_add_(momenta[:decayed], weights[:decayed], alpha=group["weight_decay"])
        rates = alike(layers, 1.0) * group["lr"]
        torch._foreach_addcmul_(weights, momenta, rates.unbind(), value=-1)

    def _shares(self, layers: Layers, group: dict[str, Any]) -> Tensor:
        """Count the norm of each gradient; return what to multiply the gradient with."""
        steps, kept = self._states(layers, "step", "norm_sq")
        beta = group["betas"][1]
        new = norms(layers.gradients).square()
        mean = torch.where(
            torch.stack(steps) == 0, new, beta * torch.stack(kept) + (1 - beta) * new
        )
        torch._foreach_copy_(kept, mean.unbind())
        torch._foreach_add_(steps, number(1.0, layers.weights[0]))
        length = mean.sqrt()
        # 0 / 0 counts as 0.
        return unless_nothing(1 / (length + group["eps"]), length, 1.0)


OPTIMIZER = NovoGrad
