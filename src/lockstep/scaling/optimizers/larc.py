"""LARC: LARS whose local rate is clipped at the global one (NVIDIA Apex, apex.parallel.LARC).

LARS may raise a layer's rate without limit. LARC only lowers it, so it needs less warm-up.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lockstep.scaling.optimizers.lars import LARS, local_rates
from lockstep.scaling.optimizers.layerwise import Layers, Params


class LARC(LARS):
    """SGD with momentum; a layer's rate is the smaller of `lr` and LARS's local rate.

    The local rate is `trust * |w| / (|g| + weight_decay * |w| + eps)`, without `lr`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.1,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.02,
        eps: float = 1e-8,
        nesterov: bool = False,
        adapt: bool | None = None,
    ) -> None:
        """`adapt`: clip the rate of every layer, of none, or (None) of all but vectors."""
        super().__init__(
            params,
            lr,
            momentum=momentum,
            weight_decay=weight_decay,
            trust=trust,
            eps=eps,
            nesterov=nesterov,
            adapt=adapt,
        )

    def _rates(self, layers: Layers, group: dict[str, Any]) -> Tensor:
        return torch.clamp(local_rates(layers, group, torch.inf), max=group["lr"])


OPTIMIZER = LARC
