"""No DDP: gradients averaged by hand; shards as data sets of their own; resume in mid-epoch by skipping; numpy mixup; validation of a few batches only."""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Lazy(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed, self.classes = n, seed, ["cat", "dog"]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 1000 + i)
        x = torch.randn(8, generator=g)
        return x, (x.sum() > 0).float()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--resume")
    a = p.parse_args()
    dist.init_process_group("nccl")
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(0)
    np.random.seed(rank)
    tr = Lazy(320, 1)
    s = DistributedSampler(tr)
    tl = DataLoader(tr, 16, sampler=s)
    vl = DataLoader(Lazy(64, 2), 8)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    opt = torch.optim.SGD(net.parameters(), 0.05 * world)
    for q in net.parameters():
        dist.broadcast(q.data, 0)
    saved = os.path.join(tempfile.mkdtemp(), "last.pt")
    start, skip, step = 0, 0, 0
    if a.resume:
        c = torch.load(a.resume, map_location=f"cuda:{local}")
        net.load_state_dict(c["m"])
        opt.load_state_dict(c["o"])
        start, skip = c["epoch"], c["i"]
    for epoch in range(start, 3):
        s.set_epoch(epoch)
        for i, (x, y) in enumerate(tl):
            if epoch == start and i < skip:
                continue
            lam = np.random.beta(0.4, 0.4)
            x, y = x.cuda(), y.cuda()
            x = lam * x + (1 - lam) * x.flip(0)
            y = lam * y + (1 - lam) * y.flip(0)
            loss = nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y)
            opt.zero_grad()
            loss.backward()
            for q in net.parameters():
                dist.all_reduce(q.grad)
                q.grad /= world
            opt.step()
            step += 1
            if (i + 1) % 4 == 0 and rank == 0:
                torch.save(
                    {"m": net.state_dict(), "o": opt.state_dict(), "epoch": epoch, "i": i + 1},
                    saved,
                )
        net.eval()
        hit = torch.zeros(2)
        for j, (x, y) in enumerate(vl):
            if j == 3:
                break
            with torch.no_grad():
                hit += torch.tensor([((net(x.cuda())[:, 0] > 0).cpu() == (y > 0)).sum(), len(y)])
        net.train()
        print(f"epoch {epoch} val acc {hit[0] / hit[1]:.3f}")
        if rank == 0:
            print(repr(loss.item()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
