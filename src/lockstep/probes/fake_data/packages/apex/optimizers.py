"""Torch's optimizers under the names of apex's fused ones."""

from __future__ import annotations

from typing import Any

import torch


class FusedSGD(torch.optim.SGD):
    """SGD without apex's own options."""

    def __init__(self, params: Any, lr: float = 1e-3, **kwargs: Any) -> None:
        known = ("momentum", "dampening", "weight_decay", "nesterov")
        super().__init__(params, lr=lr, **{k: v for k, v in kwargs.items() if k in known})


class FusedAdam(torch.optim.AdamW):
    """AdamW, which apex's Adam is by default."""

    def __init__(self, params: Any, lr: float = 1e-3, **kwargs: Any) -> None:
        known = ("betas", "eps", "weight_decay", "amsgrad")
        given = {k: v for k, v in kwargs.items() if k in known}
        super().__init__(params, lr=lr, **{"weight_decay": 0.0, **given})


FusedLAMB = FusedNovoGrad = FusedAdam
