"""Ranks with different numbers of batches, under Join."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.utils.data import DataLoader, Subset, TensorDataset


def main():
    dist.init_process_group("nccl")
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(0)
    x = torch.randn(170, 6, generator=torch.Generator().manual_seed(0))
    y = x.sum(1, keepdim=True)
    part = Subset(
        TensorDataset(x, y),
        range(
            rank * 100 if world == 2 else rank * 60,
            min(170, 100 + rank * 100) if world == 2 else min(170, rank * 60 + 60),
        ),
    )
    dl = DataLoader(part, 5, shuffle=True, generator=torch.Generator().manual_seed(rank))
    ddp = nn.parallel.DistributedDataParallel(nn.Linear(6, 1).cuda(), device_ids=[local])
    opt = torch.optim.SGD(ddp.parameters(), 0.01 * world)
    for epoch in range(2):
        with Join([ddp]):
            for a, b in dl:
                opt.zero_grad()
                loss = nn.functional.mse_loss(ddp(a.cuda()), b.cuda())
                loss.backward()
                opt.step()
        print(f"rank {rank} epoch {epoch} loss {loss.item()!r}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
