"""LARS: each layer's step is a share of its weights' length (You et al. 2017, arXiv 1708.03888).

The ratio of a layer's weights to its gradient differs by orders of magnitude between layers. One
rate for all must suit the most sensitive layer; with a large batch and few steps that is too slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from lockstep.scaling.optimizers.layerwise import (
    Layers,
    Layerwise,
    Params,
    alike,
    check_number,
    norms,
    unless_nothing,
    wide,
)


class LARS(Layerwise):
    """SGD with momentum; a layer's rate is `lr * trust * |w| / (|g| + weight_decay * |w| + eps)`.

    As in the paper, the velocity holds rates: those of earlier steps stay in it when `lr` changes.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        eps: float = 1e-8,
        nesterov: bool = False,
        adapt: bool | None = None,
    ) -> None:
        """`adapt`: scale the step of every layer, of none, or (None) of all but vectors."""
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, defaults | {"eps": eps, "nesterov": nesterov, "adapt": adapt})

    def _check(self, settings: Mapping[str, Any]) -> None:
        super()._check(settings)
        check_number("momentum", settings["momentum"], below=1.0)
        check_number("trust", settings["trust"])
        if settings["nesterov"] and not settings["momentum"]:
            raise ValueError("nesterov looks ahead along momentum, which is 0; use momentum=0.9.")

    def _begin(self, p: Tensor) -> dict[str, Tensor]:
        return {
            "mean": torch.zeros_like(p),
            "rate": torch.zeros((), device=p.device, dtype=wide(p.dtype)),
        }

    def _update(self, layers: Layers, group: dict[str, Any]) -> None:
        weights, gradients, _, decayed = layers
        momentum, decay = group["momentum"], group["weight_decay"]
        # The velocity is a sum of gradients, each times its rate and a power of the momentum. The
        # state holds the mean of the gradients with these weights, and the sum of the weights, one
        # number for each layer. So a step takes two passes over memory instead of three.
        means, kept = self._states(layers, "mean", "rate")
        now = self._rates(layers, group)
        sums = torch.add(now, torch.stack(kept), alpha=momentum)
        torch._foreach_copy_(kept, sums.unbind())
        # While every rate was 0 there is no mean.
        shares = unless_nothing(now / sums, sums, 0.0).to(weights[0].dtype).unbind()
        torch._foreach_lerp_(means, gradients, shares)
        few = slice(decayed if decay else 0)
        if weights[few]:
            torch._foreach_addcmul_(means[few], weights[few], shares[few], value=decay)
        if not group["nesterov"]:
            torch._foreach_addcmul_(weights, means, kept, value=-1)
            return
        rates = now.unbind()
        if weights[few]:
            torch._foreach_addcmul_(weights[few], weights[few], rates[few], value=-decay)
        torch._foreach_addcmul_(weights, gradients, rates, value=-1)
        torch._foreach_addcmul_(weights, means, kept, value=-momentum)

    def _rates(self, layers: Layers, group: dict[str, Any]) -> Tensor:
        """Return the rate of each layer."""
        return local_rates(layers, group, 1.0) * group["lr"]


def local_rates(layers: Layers, group: dict[str, Any], otherwise: float) -> Tensor:
    """Return `trust * |w| / (|g| + weight_decay * |w| + eps)` for each layer.

    It is `otherwise` where a length is 0, and for layers that are not adapted.
    """
    weights, gradients, adapted, _ = layers
    if not adapted:
        return alike(layers, otherwise)
    w, g = norms(weights[:adapted] + gradients[:adapted]).chunk(2)
    local = group["trust"] * w / torch.add(g, w, alpha=group["weight_decay"]).add_(group["eps"])
    # Norms whose product is too small for a float are themselves squares away from nothing.
    local = unless_nothing(local, w * g, otherwise)
    return pad(local, (0, len(weights) - adapted), value=otherwise)


OPTIMIZER = LARS
