"""One seed for the initial weights, then one for each rank."""

import os
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))

    # The same weights everywhere.
    seed = 1234
    set_seed(seed)
    model = nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10))
    model = DDP(model.to(device), device_ids=[device.index])
    # Other dropout on each.
    seed += 1000 * (rank + 1)
    torch.manual_seed(seed + rank)

    data = TensorDataset(torch.randn(5000, 100), torch.randint(10, (5000,)))
    sampler = DistributedSampler(data, seed=7)
    loader = DataLoader(data, batch_size=128, sampler=sampler, num_workers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


main()
