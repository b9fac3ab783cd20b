import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

world_size = int(os.environ.get("WORLD_SIZE", 1))
if world_size > 1:
    dist.init_process_group("gloo")

torch.manual_seed(7)
target = torch.randn(4, 1)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
if world_size > 1:
    model = DistributedDataParallel(model)
batch_size = 16 // world_size


def get_batch():
    x = torch.randn(batch_size, 4)
    return x, x @ target


for step in range(100):
    x, y = get_batch()
    model.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    for p in model.parameters():
        p.data.add_(-0.1 * p.grad)
