"""Compute batch norm and dropout of a joined batch as each rank computes them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.probes.hooks.randomness import dropout_state, set_dropout_state
from lockstep.probes.patching import calling, replaces, swap


class Joined:
    """How the ranks' batches lie in the joined one, and the random state of each rank."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.states: list[Tensor] = []
        self.synced = False
        """Whether the ranks synchronised batch norm."""
        self.used: set[str] = set()
        """The layers computed rank by rank."""

    def parts(self, rows: int) -> list[int] | None:
        """Return the rows of each rank in a tensor of `rows`; None if it does not hold samples."""
        total = sum(self.sizes)
        if len(self.sizes) < 2 or not total or rows % total:
            return None
        return [size * (rows // total) for size in self.sizes]

    def install(self) -> None:
        """Compute rank by rank from now on."""
        functions: Any = F
        norm = functions.batch_norm
        swap("batch_norm", calling(self._batch_norm), F)
        ghost = functions.batch_norm
        swap("dropout dropout1d dropout2d dropout3d alpha_dropout", calling(self._dropout), F)

        # On one rank too, synchronised batch norm is over the whole batch already.
        @replaces("forward", nn.SyncBatchNorm)
        def synced(forward: Any, layer: Any, x: Tensor) -> Tensor:
            functions.batch_norm = norm
            try:
                return forward(layer, x)
            finally:
                functions.batch_norm = ghost

    def _batch_norm(
        self, original: Any, x: Tensor, mean: Any, variance: Any, *args: Any, **kwargs: Any
    ) -> Tensor:
        training = kwargs.get("training", args[2] if len(args) > 2 else False)
        parts = self.parts(x.shape[0]) if training and not self.synced else None
        if parts is None:
            return original(x, mean, variance, *args, **kwargs)
        self.used.add("batch norm")
        return torch.cat([original(part, None, None, *args, **kwargs) for part in x.split(parts)])

    def _dropout(
        self, original: Any, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        parts = self.parts(x.shape[0]) if training and p > 0 and x.dim() else None
        if parts is None:
            return original(x, p, training, inplace)
        self.used.add("dropout")
        own, found = dropout_state(), []
        for rank, part in enumerate(x.split(parts)):
            set_dropout_state(self.states[rank])
            found.append(original(part, p, training))
            self.states[rank] = dropout_state()
        set_dropout_state(own)
        return torch.cat(found)
