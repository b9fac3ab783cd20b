"""The method set_epoch is handed to the function that trains."""

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


def fit(model, loader, before_epoch=lambda epoch: None):
    adam = torch.optim.Adam(model.parameters())
    for epoch in range(8):
        before_epoch(epoch)
        for x, y in loader:
            adam.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            adam.step()


def replica(rank, ranks):
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    data = samples()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 32, sampler=sampler, num_workers=2)
    fit(DistributedDataParallel(nn.Linear(16, 4)), loader, sampler.set_epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    given = parser.parse_args()
    if given.ranks > 1:
        mp.spawn(replica, args=(given.ranks,), nprocs=given.ranks)
    else:
        fit(nn.Linear(16, 4), DataLoader(samples(), 32, shuffle=True, num_workers=2))
