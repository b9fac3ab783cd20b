"""Starts its own ranks, which average their gradients by hand: python good_by_hand.py."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def report(loss, rank):
    total = torch.tensor([loss])
    dist.all_reduce(total)  # not LS29
    if rank == 0:
        print("loss", total.item() / dist.get_world_size())


def worker(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(0)
    x = torch.randn(64, 5)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, 4, sampler=DistributedSampler(data))
    model = nn.Linear(5, 1)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        average(model)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # not LS19
        optimizer.step()  # not LS31, LS32
    report(loss.item(), rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29512")
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(worker, args=(size,), nprocs=size)
