import os

import numpy as np
import torch.distributed as dist


def dump_array(path, tensor):
    """Saved once: the other ranks hold the same gathered tensor and go home."""
    if dist.get_rank() != 0:
        return
    np.save(path, tensor.cpu().numpy())


def per_rank_log(folder):
    os.makedirs(folder, exist_ok=True)
    return open(os.path.join(folder, f"rank{dist.get_rank()}.txt"), "w")
