"""Measure how far buffers that should be equal on all replicas have drifted apart.

DDP averages gradients and nothing else. Running statistics of batch norm, moving averages of
weights and counters differ between replicas, and usually only the first replica saves them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def buffer_drift(model: nn.Module) -> dict[str, float]:
    """Return the buffers that differ between replicas, with the largest relative difference.

    All replicas must call this together, and get the same answer. It is empty if none differs.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return {}
    drift = {}
    for name, buffer in model.named_buffers():
        own = buffer.detach().double() if buffer.dtype != torch.float64 else buffer.detach().clone()
        if not own.numel():
            continue
        least, most = own.contiguous().clone(), own.contiguous().clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        size = torch.maximum(least.abs(), most.abs())
        apart = torch.where(most == least, 0.0, (most - least) / size).max().item()
        if apart != 0.0:
            drift[name] = apart
    return drift
