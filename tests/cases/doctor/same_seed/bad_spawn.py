"""Processes from mp.spawn; each seeds itself with the same number."""

import random

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def fix_seeds(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # LS20
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.benchmark = False


class Net(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.hidden = nn.Linear(64, width)
        self.drop = nn.Dropout(p=0.5)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.hidden(x))))


def worker(rank, world_size):
    dist.init_process_group("nccl", "tcp://127.0.0.1:29500", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    fix_seeds(2023)
    model = DDP(Net().to(rank), device_ids=[rank])
    data = TensorDataset(torch.load("x.pt", map_location="cpu"), torch.load("y.pt", "cpu"))
    sampler = DistributedSampler(data, world_size, rank)
    loader = DataLoader(data, batch_size=256, sampler=sampler, num_workers=2, pin_memory=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.to(rank)), y.to(rank))
            loss.backward()
            optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "net.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n,), nprocs=n)
