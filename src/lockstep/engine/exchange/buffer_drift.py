"""Buffers that should be equal on all replicas, and how far apart they are.

DDP averages gradients and nothing else. Running statistics of batch norm, moving averages of
weights, counters: each replica has its own, and only the first one's are saved.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def buffer_drift(model: nn.Module) -> dict[str, float]:
    """Names of the buffers that differ between replicas, with the largest relative difference.

    All replicas must call it together, and get the same answer. Empty: they are in step.
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
