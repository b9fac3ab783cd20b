"""Note means that learn, and over how many items they are: a fixed number per sample, or not."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lockstep.probes.recorder import Recorder
from lockstep.probes.spans import Span, here

_LOSSES = (
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy cross_entropy nll_loss kl_div "
    "binary_cross_entropy_with_logits gaussian_nll_loss poisson_nll_loss soft_margin_loss "
    "hinge_embedding_loss margin_ranking_loss cosine_embedding_loss triplet_margin_loss"
)


class Means:
    """Means whose number of items changes from batch to batch, as after a mask."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.size = 0
        self.shares: dict[Span, set[float]] = {}
        """For each place, the items of a mean per sample of the batch."""
        recorder.on_batch.append(self._batch)
        recorder.on_end.append(self._note)
        for name in _LOSSES.split():
            setattr(functional, name, self._watched(getattr(functional, name)))
        Tensor.mean = self._watched(Tensor.mean)  # type: ignore[method-assign]
        torch.mean = self._watched(torch.mean)

    def _batch(self, data: Any, batch: Any) -> Any:
        self.size = batch.size
        return data

    def _watched(self, original: Any) -> Any:
        @wraps(original)
        def mean(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            first = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
            if not (self.size and first is not None and first.ndim and isinstance(found, Tensor)):
                return found
            if found.ndim == 0 and found.requires_grad and not self.recorder.worker:
                self.shares.setdefault(here(), set()).add(len(first) / self.size)
            return found

        return mean

    def _note(self) -> None:
        for span, shares in self.shares.items():
            if len(shares) > 1:
                self.recorder.note("uneven_mean", span=span)
        self.shares = {}
