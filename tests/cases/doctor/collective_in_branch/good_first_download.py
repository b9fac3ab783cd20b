"""Rank 0 downloads first; both sides make the same collectives, in two branches."""

import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


@contextmanager
def first(local_rank):
    if local_rank not in (-1, 0):
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


@contextmanager
def leader_first(local_rank):
    if local_rank not in {-1, 0}:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


def told_by_rank_0(model, rank):
    """Rank 0 calls the closure; the others follow the signal in the loop below."""
    signal = torch.zeros(1)

    def evaluate():
        if rank == 0:
            signal.fill_(1)
            dist.broadcast(signal, src=0)
        return sum(p.sum() for p in model.parameters())

    if rank == 0:
        evaluate()
        dist.broadcast(signal.zero_(), src=0)
    else:
        while True:
            dist.broadcast(signal, src=0)
            if not signal.item():
                break
            evaluate()


def share(name):
    if dist.get_rank() == 0:
        names = [name]
        dist.broadcast_object_list(names, src=0)
    else:
        names = [None]
        dist.broadcast_object_list(names, src=0)
    return names[0]


def collect(value):
    if dist.get_rank() == 0 and dist.get_world_size() == 1:
        return value[None]
    if dist.get_rank() != 0:
        dist.gather(value, dst=0)
        return None
    parts = [torch.zeros_like(value) for _ in range(dist.get_world_size())]
    dist.gather(value, parts, dst=0)
    return torch.stack(parts)


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ.get("LOCAL_RANK", -1))
    run = share(time.strftime("%H-%M-%S"))
    low_rank = 4
    if local_rank >= 0 and low_rank > 0:
        dist.barrier()
    with first(local_rank):
        data = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
    with leader_first(local_rank):
        torch.manual_seed(0)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, low_rank), nn.Linear(low_rank, 10))
    model = DDP(model.cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            if step == 500:
                break
            loss = nn.functional.cross_entropy(model(x.cuda(local_rank)), y.cuda(local_rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses = collect(loss.detach())
        told_by_rank_0(model.module, dist.get_rank())
        if losses is not None:
            print(run, losses.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
