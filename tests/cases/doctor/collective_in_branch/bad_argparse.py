"""Rank 0 adds up the loss and waits for the others, alone."""

import argparse
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
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--local-rank", type=int, default=-1)
    args = parser.parse_args()
    if args.local_rank == -1:
        args.local_rank = int(os.environ["LOCAL_RANK"])

    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", args.local_rank)
    model = DDP(nn.Linear(784, 10).to(device), device_ids=[args.local_rank])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, args.batch_size, sampler=sampler, num_workers=2)
    lr = args.lr * dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        count = torch.zeros((), device=device)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(labels)
            count += len(labels)
        if rank == 0:
            dist.all_reduce(total)  # LS29
            dist.all_reduce(count)  # LS29
            print(f"epoch {epoch}: loss {total / count:.4f}")
            torch.save(model.module.state_dict(), "last.pt")
            dist.barrier()  # LS29
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
