"""Dropout that draws the same mask for a shard whichever replica computes it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from lockstep.layers.shards import Shards, possible_share


class ShardDropout(_DropoutNd):
    """Dropout whose mask depends on the step and the shard alone."""

    shards: Shards
    whole_channels = False
    """Whether a channel is dropped as a whole (nn.Dropout2d and the like)."""

    def forward(self, input: Tensor) -> Tensor:
        """In training, set a share `p` of the values to zero and scale up the others."""
        if not self.training or self.p == 0.0:
            return input
        if self.p == 1.0:
            return input * 0.0
        share = possible_share(1.0 - self.p)
        self.shards.check(input)
        if self.whole_channels:
            mask = self.shards.keep(input.shape[:2], share)
            mask = mask.view(*mask.shape, *[1] * (input.dim() - 2))
        elif self.shards.channels_last and input.dim() == 4:
            batch, channels, height, width = input.shape
            mask = self.shards.keep((batch, height, width, channels), share)
            mask = mask.permute(0, 3, 1, 2)
        else:
            mask = self.shards.keep(input.shape, share)
        # Backward keeps nothing but this mask, of one byte per value.
        return torch.where(mask, input * (1.0 / share), 0.0)
