"""Torch's layer norm under apex's names."""

from torch import nn

FusedLayerNorm = MixedFusedLayerNorm = nn.LayerNorm
FusedRMSNorm = MixedFusedRMSNorm = nn.RMSNorm
