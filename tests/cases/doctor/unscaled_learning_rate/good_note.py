"""A script for one GPU that was started on eight, with a rate that was looked for there."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

from resnets import resnet20  # elsewhere


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1, help="for a global batch of 1024")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if rank == 0:
        print(f"{world_size} processes")

    data = datasets.CIFAR10("data", train=True, transform=transforms.ToTensor())
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank)
    loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=args.workers)
    model = DDP(resnet20().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    schedule = CosineAnnealingLR(optimizer, args.epochs)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = criterion(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        if rank == 0:
            torch.save(model.module.state_dict(), "resnet20.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
