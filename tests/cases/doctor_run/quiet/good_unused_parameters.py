"""Each rank draws its own task and drops layers: find_unused_parameters is needed."""

import os
import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.heads = nn.ModuleDict({k: nn.Linear(16, 1) for k in ("a", "b")})

    def forward(self, x, task):
        x = self.body(x).relu()
        for b in self.blocks:
            if self.training and random.random() < 0.2:
                continue
            x = x + b(x).relu()
        return self.heads[task](x)[:, 0]


def main():
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    random.seed(rank)
    torch.manual_seed(rank)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(256, 8, generator=g)
    ds = TensorDataset(x, x.sum(1), x.prod(1))
    s = DistributedSampler(ds)
    dl = DataLoader(ds, 8, sampler=s)
    net = nn.parallel.DistributedDataParallel(
        Net().cuda(), device_ids=[local], find_unused_parameters=True
    )
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(2):
        s.set_epoch(epoch)
        for x, a, b in dl:
            task = random.choice("ab")
            loss = nn.functional.mse_loss(net(x.cuda(), task), (a if task == "a" else b).cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
        t = loss.detach().clone()
        dist.all_reduce(t)
        if rank == 0:
            print(epoch, repr(t.item() / dist.get_world_size()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
