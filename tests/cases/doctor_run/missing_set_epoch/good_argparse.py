"""Trains a small classifier: torchrun --nproc-per-node 2 good_argparse.py."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 20, generator=generator)
    return TensorDataset(images, (images[:, 0] > 0).long())


def train_one_epoch(model, loader, optimizer):
    model.train()
    total = torch.zeros(2)
    for images, labels in loader:  # not LS01
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item(), 1.0])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    counts = torch.zeros(2)
    for images, labels in loader:  # not LS09
        correct = (model.module(images).argmax(1) == labels).sum()
        counts += torch.tensor([correct.item(), len(labels)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2)))
    train_set, val_set = samples(64, 0), samples(31, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, args.batch_size, sampler=sampler)
    val_part = Subset(val_set, range(rank, len(val_set), size))
    val_loader = DataLoader(val_part, 8)  # not LS06
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_one_epoch(model, train_loader, optimizer)
        scheduler.step(loss)  # not LS23
        accuracy = evaluate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")
            torch.save(model.module.state_dict(), "last.pt")  # not LS25
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
