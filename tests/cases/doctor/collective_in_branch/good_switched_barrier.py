"""Rank 0 evaluates and loads data without a barrier: only data for training waits for it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def prepared(rank, evaluate=False):
    if rank != 0 and not evaluate:
        dist.barrier()
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    if rank == 0 and not evaluate:
        dist.barrier()
    return data


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    net = DDP(nn.Linear(784, 10).to(device), device_ids=[device.index])
    data = prepared(rank)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4, pin_memory=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 * dist.get_world_size() ** 0.5)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(len(prepared(rank, evaluate=True)))


if __name__ == "__main__":
    main()
