"""How the weights are updated."""

import torch.distributed as dist
from torch import optim


def make_optimizer(model, rate=0.02):
    """Plain SGD with momentum; no decay for biases."""
    rate *= dist.get_world_size()
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}]
    return optim.SGD(groups, lr=rate, momentum=0.9)
