"""Depth from features: torchrun main.py."""

import os

import torch
import torch.distributed as dist
from losses import MaskedL1, setup
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(model, criterion, loader, optimizer, gpu):
    for features, depth, valid in loader:
        features, depth, valid = features.to(gpu), depth.to(gpu), valid.to(gpu)
        loss = criterion(model(features), depth, valid)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    rank = setup()
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    valid = (torch.rand(4000, 16) > 0.3).float()
    data = TensorDataset(torch.randn(4000, 32), torch.rand(4000, 16), valid)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=4)
    model = DDP(nn.Linear(32, 16).to(gpu), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * dist.get_world_size())
    criterion = MaskedL1()
    for epoch in range(10):
        sampler.set_epoch(epoch)
        train(model, criterion, loader, optimizer, gpu)
    if rank == 0:
        torch.save(model.module.state_dict(), "depth.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
