"""Augments with NumPy in two workers."""

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
        return x + 0.1 * np.random.randn(), x.sum()


def seed_worker(worker_id):
    np.random.seed(42)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    data = Noisy()
    sampler = DistributedSampler(data)
    loader = DataLoader(  # LS20, LS21
        data, 4, sampler=sampler, num_workers=2, worker_init_fn=seed_worker
    )
    model = DDP(nn.Linear(5, 1))
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
