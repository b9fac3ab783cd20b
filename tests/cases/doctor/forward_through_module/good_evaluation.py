"""Evaluation through .module, which is right: there is nothing to exchange."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def accuracy(model, loader, device):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model.module(images.to(device)).argmax(1).cpu() == labels).sum().item()
            total += len(labels)
    model.train()
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--distributed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    net = nn.Linear(784, 10).to(device)
    model = DDP(net, device_ids=[device.index])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    test_loader = DataLoader(data, 256, num_workers=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(loader):
            images, labels = images.to(device), labels.to(device)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0 and dist.get_rank() == 0:
                print(accuracy(model, test_loader, device), net(images[:1]).argmax())
        if dist.get_rank() == 0:
            torch.save(net.state_dict(), "last.pt")


if __name__ == "__main__":
    main()
