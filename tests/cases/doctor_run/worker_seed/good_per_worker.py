"""Augments with NumPy in two workers, and drops out."""

import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Noisy(Dataset):
    def __init__(self):
        self.x = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        return x + 0.1 * np.random.randn() * random.choice([-1, 1]), x.sum()


def seed_worker(worker_id):
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(torch.initial_seed())


def main():
    dist.init_process_group("gloo")
    # The model is the same on all ranks, what they draw later is not.
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.2), nn.BatchNorm1d(16), nn.Linear(16, 1)))
    torch.manual_seed(1 + dist.get_rank())
    data = Noisy()
    sampler = DistributedSampler(data)
    loader = DataLoader(  # not LS20, LS21, LS30
        data, 4, sampler=sampler, num_workers=2, worker_init_fn=seed_worker, persistent_workers=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x.float()).squeeze(1), y).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
