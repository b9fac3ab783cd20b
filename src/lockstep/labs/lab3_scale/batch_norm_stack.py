"""A stack with batch norm, with statistics per replica, per shard, or over the whole batch.

Only the cut of the batch differs: into the batches of the replicas, into shards of a fixed size, or
not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.labs.lab3_scale.model_stack import Stack

MOMENTUM, EPS = 0.1, 1e-5
"""The defaults of torch's batch norm."""


class NormedStack(Stack):
    """Perceptrons with batch norm before each ReLU, over `parts` equal slices of a batch."""

    def __init__(
        self,
        sizes: Sequence[int],
        seeds: Sequence[int],
        parts: int,
        *,
        merged: bool,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """With `merged`, test with the mean of all running statistics, else with the first part's.

        DDP leaves those of the first part: it sends the first replica's buffers to all.
        """
        super().__init__(sizes, seeds, device, dtype)
        self.parts, self.merged, self.training = parts, merged, True
        like = self.parameters[0]
        hidden = list(sizes[1:-1])
        self.scales = [like.new_ones(len(self), 1, width).requires_grad_() for width in hidden]
        self.shifts = [like.new_zeros(len(self), 1, width).requires_grad_() for width in hidden]
        self.means = [like.new_zeros(len(self), parts, width) for width in hidden]
        self.variances = [like.new_ones(len(self), parts, width) for width in hidden]

    def trained(self) -> list[Tensor]:
        """Return the parameters, including the scale and shift of each norm."""
        return [*self.parameters, *self.scales, *self.shifts]

    def between(self, hidden: Tensor, layer: int) -> Tensor:
        """Normalise each part by itself in training, otherwise by the running statistics."""
        if self.training:
            parts = hidden.unflatten(1, (self.parts, -1))
            # Not torch.var_mean, which takes five times as long over few samples.
            mean = parts.mean(2, keepdim=True)
            centred = parts - mean
            variance = centred.square().mean(2, keepdim=True)
            self._remember(layer, mean.detach(), variance.detach(), parts.shape[2])
            out = (centred * torch.rsqrt(variance + EPS)).flatten(1, 2)
        else:
            mean, variance = (self._seen(of[layer]) for of in (self.means, self.variances))
            out = (hidden - mean) * torch.rsqrt(variance + EPS)
        return torch.addcmul(self.shifts[layer], out, self.scales[layer]).relu()

    def _remember(self, layer: int, mean: Tensor, variance: Tensor, count: int) -> None:
        self.means[layer].lerp_(mean[:, :, 0], MOMENTUM)
        # Like torch, remember the unbiased estimate.
        self.variances[layer].lerp_(variance[:, :, 0] * (count / (count - 1)), MOMENTUM)

    def _seen(self, rows: Tensor) -> Tensor:
        return rows.mean(1, keepdim=True) if self.merged else rows[:, :1]

    def test(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Test with the running statistics."""
        self.training = False
        try:
            return super().test(inputs, targets)
        finally:
            self.training = True
