"""Starts its own ranks: python bad_spawn.py."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.main, self.extra = nn.Linear(5, 1), nn.Linear(5, 1)

    def forward(self, x, extra=False):
        return self.extra(x) if extra else self.main(x)


def worker(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(0)
    model = DDP(Net())  # LS12
    x = torch.randn(32, 5)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, 4, sampler=DistributedSampler(data))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in loader:
        loss = nn.functional.l1_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(worker, args=(size,), nprocs=size)
