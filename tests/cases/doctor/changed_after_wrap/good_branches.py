"""Moves in the other branch, of other models, and after the training."""

import argparse
import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--single", action="store_true")
    args = parser.parse_args()
    gpu = int(os.environ.get("LOCAL_RANK", 0))
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 2))
    for p in model[0].parameters():
        p.requires_grad = False
    if not args.single:
        dist.init_process_group("nccl")
        model = DDP(model.cuda(gpu), device_ids=[gpu])
    else:
        model = model.cuda()
    model = model.to(f"cuda:{gpu}", memory_format=torch.preserve_format)
    average = copy.deepcopy(model.module if world_size > 1 else model)
    for p in average.parameters():
        p.requires_grad_(False)
    average.double()
    data = TensorDataset(torch.randn(400, 20), torch.randint(2, (400,)))
    sampler = DistributedSampler(data, world_size, int(os.environ.get("RANK", 0)))
    loader = DataLoader(data, batch_size=40, sampler=sampler, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * world_size)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.cuda(gpu)), y.cuda(gpu)).backward()
            optimizer.step()
    model.module[2] = nn.Identity()
    model.module.extra = nn.Linear(40, 40)
    model.half()
    for p in model.module[0].parameters():
        p.requires_grad = True


if __name__ == "__main__":
    main()
