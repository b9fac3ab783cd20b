"""The most memory that a replica used at once."""

from __future__ import annotations

import torch


def peak_memory(device: torch.device) -> int:
    """Return the most bytes used at once: allocated on the GPU, resident on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
