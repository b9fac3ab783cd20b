"""Trains a small classifier: torchrun --nproc-per-node 2 bad_argparse.py."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 20, generator=generator)
    return TensorDataset(images, (images[:, 0] > 0).long())


def train_one_epoch(model, loader, optimizer):
    model.train()
    for images, labels in loader:  # LS01
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = total = 0
    for images, labels in loader:  # LS09
        correct += (model(images).argmax(1) == labels).sum().item()
        total += len(labels)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2)))
    train_set, val_set = samples(64, 0), samples(31, 1)
    train_loader = DataLoader(
        train_set, args.batch_size, sampler=DistributedSampler(train_set), num_workers=0
    )
    val_loader = DataLoader(val_set, 8, sampler=DistributedSampler(val_set, shuffle=False))  # LS06
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, train_loader, optimizer)
        accuracy = evaluate(model, val_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")
        torch.save(model.module.state_dict(), "last.pt")  # LS25
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
