"""Parts of different lengths, cut to the shortest; sum loss over windows with the gradient divided by the count of all ranks."""

import itertools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset


def main():
    dist.init_process_group("nccl")
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(301, 8, generator=g)
    y = (x.sum(1) > 0).long()
    ds = TensorDataset(x, y)
    part = Subset(
        ds, list(range(rank, len(ds), world)) if rank else list(range(0, len(ds), world)) + []
    )
    if rank == world - 1:
        part = Subset(ds, part.indices[:-9])
    gen = torch.Generator()
    dl = DataLoader(part, 8, shuffle=True, generator=gen, drop_last=True)
    n = torch.tensor(len(dl), device="cuda")
    dist.all_reduce(n, op=dist.ReduceOp.MIN)
    n = int(n) // 2 * 2
    net = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).cuda(), device_ids=[local]
    )
    opt = torch.optim.SGD(net.parameters(), 0.05 * world)
    for epoch in range(3):
        gen.manual_seed(100 * epoch + rank)
        count = 0
        for i, (a, b) in enumerate(itertools.islice(dl, n)):
            net.require_backward_grad_sync = i % 2 == 1
            loss = F.cross_entropy(net(a.cuda()), b.cuda(), reduction="sum")
            loss.backward()
            count += len(b)
            if i % 2:
                c = torch.tensor(float(count), device="cuda")
                dist.all_reduce(c)
                for p in net.parameters():
                    p.grad.mul_(world / c)
                opt.step()
                opt.zero_grad()
                count = 0
        if rank == 0:
            print(epoch, repr(loss.item()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
