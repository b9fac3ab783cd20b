"""LAMB: Adam whose step has the length of the layer (You et al. 2019, arXiv 1904.00962).

Algorithm 2 of the paper, with bias correction; the decay is inside the length of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.scaling.optimizers.layerwise import (
    Layers,
    Layerwise,
    Params,
    check_betas,
    norms,
    number,
    wide,
)


class LAMB(Layerwise):
    """The step `u = m / (sqrt(v) + eps) + weight_decay * w`, scaled by `lr * |w| / |u|`.

    `m` and `v` are Adam's moments, corrected for their start from zero.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.01,
        eps: float = 1e-6,
        adapt: bool | None = None,
    ) -> None:
        """`adapt`: scale the step of every layer, of none, or (None) of all but vectors."""
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        super().__init__(params, defaults | {"eps": eps, "adapt": adapt})

    def _check(self, settings: Mapping[str, Any]) -> None:
        super()._check(settings)
        check_betas(settings["betas"])

    def _begin(self, p: Tensor) -> dict[str, Tensor]:
        return {
            "step": torch.zeros((), device=p.device),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }

    def _update(self, layers: Layers, group: dict[str, Any]) -> None:
        weights, gradients, adapted, decayed = layers
        (beta1, beta2), decay, eps = group["betas"], group["weight_decay"], group["eps"]
        steps, means, squares = self._states(layers, "step", "exp_avg", "exp_avg_sq")
        torch._foreach_add_(steps, number(1.0, weights[0]))
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, number(beta2, weights[0]))
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)

        # What the moments lack because they began with zeros. Correcting them would take three
        # passes over memory, so eps and the step's scale are corrected: with c = root / first,
        #     (m / first) / (sqrt(v) / root + eps) = c * m / (sqrt(v) + eps * root).
        count = torch.stack(steps).to(wide(weights[0].dtype))
        first, root = _gathered(beta1, count), _gathered(beta2, count).sqrt()
        correction = root / first
        updates = torch._foreach_sqrt(squares)
        torch._foreach_add_(updates, (eps * root).unbind())
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, means)
        if decay and decayed:
            shares = (decay / correction[:decayed]).unbind()
            torch._foreach_addcmul_(updates[:decayed], weights[:decayed], shares)

        # The correction cancels in u / |u|.
        scales = correction
        if adapted:
            w, u = norms(weights[:adapted]), norms(list(updates[:adapted]))
            ratios = torch.where(w * u == 0, correction[:adapted], w / u)
            scales = torch.cat([ratios, correction[adapted:]])
        torch._foreach_addcmul_(weights, updates, (scales * group["lr"]).unbind(), value=-1)


def _gathered(beta: float, count: Tensor) -> Tensor:
    """Return `1 - beta ** count`, the weight that a mean has gathered, without cancellation."""
    return -torch.expm1(count * (math.log(beta) if beta else -math.inf))


OPTIMIZER = LAMB
