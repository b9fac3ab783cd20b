"""Data parallelism by torch's own wrapper."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class DistributedDataParallel(nn.parallel.DistributedDataParallel):
    """Torch's wrapper; apex's options about buckets and precision have no effect."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        device = next(module.parameters()).device
        super().__init__(module, device_ids=None if device.type == "cpu" else [device])


Reducer = DistributedDataParallel
SyncBatchNorm = nn.SyncBatchNorm


def convert_syncbn_model(module: nn.Module, process_group: Any = None, **kwargs: Any) -> nn.Module:
    """Let batch norm use the statistics of all ranks."""
    return torch.nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)
