"""Trains on nine tenths of the data and tests on the rest: torchrun split.py."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18
from torchvision.transforms import Compose, RandomResizedCrop, ToTensor


def make_loaders(args):
    data = ImageFolder(args.data, Compose([RandomResizedCrop(224), ToTensor()]))
    n_train = int(0.9 * len(data))
    order = [torch.randperm(len(data)).tolist()]
    dist.broadcast_object_list(order, src=0)
    train_set, val_set = Subset(data, order[0][:n_train]), Subset(data, order[0][n_train:])
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, args.batch, sampler=sampler, num_workers=args.workers)
    val_loader = DataLoader(val_set, args.batch, num_workers=args.workers)
    return train_loader, val_loader, sampler


@torch.no_grad()
def accuracy(model, loader, device):
    model.eval()
    correct = total = 0
    for x, y in loader:
        correct += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
        total += len(y)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="flowers")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.02, help="for one GPU")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    train_loader, val_loader, sampler = make_loaders(args)
    model = DDP(resnet18(num_classes=102).to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * dist.get_world_size())
    for epoch in range(30):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(epoch, accuracy(model.module, val_loader, device))
            torch.save(model.module.state_dict(), "flowers.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
