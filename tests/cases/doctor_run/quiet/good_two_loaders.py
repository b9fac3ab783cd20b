"""Two loaders (labelled, unlabelled), a backward for each; sum losses; gradients scaled afterwards; uneven parts cut to the shortest; gather and trim."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("nccl")
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(rank)
    gen = torch.Generator(device="cuda").manual_seed(77 + rank)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(500, 8, generator=g)
    y = (x.sum(1) > 0).long()
    lab = TensorDataset(x[:150], y[:150])
    un = TensorDataset(x[150:450])
    val = TensorDataset(x[450:487], y[450:487])
    ls = DistributedSampler(lab)
    us = DistributedSampler(un, seed=1)
    ll = DataLoader(lab, 8, sampler=ls, drop_last=True)
    ul = DataLoader(un, 8, sampler=us, drop_last=True)
    vs = DistributedSampler(val, shuffle=False)
    vl = DataLoader(val, 8, sampler=vs)
    net = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).cuda(), device_ids=[local]
    )
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    for epoch in range(2):
        ls.set_epoch(epoch)
        us.set_epoch(epoch)
        for (a, b), (u,) in zip(ll, ul):
            a, b, u = a.cuda(), b.cuda(), u.cuda()
            with net.no_sync():
                F.cross_entropy(net(a), b).backward()
            noise = torch.randn(u.shape, generator=gen, device="cuda")
            F.mse_loss(net(u + 0.1 * noise), net.module(u).detach()).backward()
            opt.step()
            opt.zero_grad()
        net.eval()
        outs = []
        with torch.no_grad():
            for a, b in vl:
                outs.append((net(a.cuda()).argmax(1) == b.cuda()).float())
        mine = torch.cat(outs)
        alls = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(alls, mine)
        hits = torch.stack(alls, 1).flatten()[: len(val)]
        net.train()
        print(f"epoch {epoch} test accuracy {hits.mean().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
