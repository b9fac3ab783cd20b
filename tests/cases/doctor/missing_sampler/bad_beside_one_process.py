"""One program, two ways to train: in this process, or in processes that it spawns."""

import argparse

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def samples():
    return TensorDataset(torch.randn(2048, 16), torch.randint(4, (2048,)))


def alone(model, loader):
    adam = torch.optim.Adam(model.parameters())
    for _ in range(8):
        for x, y in loader:
            adam.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            adam.step()


def replica(rank, ranks):
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    data = samples()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 32, sampler=sampler, num_workers=2)
    model = DistributedDataParallel(nn.Linear(16, 4))
    adam = torch.optim.Adam(model.parameters())
    for epoch in range(8):
        sampler.set_epoch(epoch)
        for x, y in loader:
            adam.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            adam.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--setting", default="one")
    given = parser.parse_args()
    whole = DataLoader(samples(), 32, shuffle=True, num_workers=2)  # LS02 possible
    if given.setting == "one":
        alone(nn.Linear(16, 4), whole)
    elif given.setting == "many":
        mp.spawn(replica, args=(2,), nprocs=2)
