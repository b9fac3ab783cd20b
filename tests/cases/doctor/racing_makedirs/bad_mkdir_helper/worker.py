import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from files import ensure_tree


def main_worker(rank, world_size, cfg):
    dist.init_process_group("nccl", init_method=cfg["url"], rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    ckpt_dir = ensure_tree(cfg["base"])
    x, y = torch.load(cfg["tensors"], map_location="cpu")
    ds = TensorDataset(x, y)
    sampler = DistributedSampler(ds, num_replicas=world_size, rank=rank)
    loader = DataLoader(ds, cfg["batch"], sampler=sampler)
    net = nn.Sequential(nn.Linear(x.size(1), 64), nn.ELU(), nn.Linear(64, 1)).cuda(rank)
    net = nn.parallel.DistributedDataParallel(net, [rank])
    optim = torch.optim.Adam(net.parameters(), cfg["lr"])
    for epoch in range(cfg["epochs"]):
        sampler.set_epoch(epoch)
        for a, b in loader:
            optim.zero_grad()
            loss = nn.functional.huber_loss(net(a.cuda(rank)).view(-1), b.cuda(rank))
            loss.backward()
            optim.step()
        if rank == 0:
            torch.save(net.module.state_dict(), os.path.join(ckpt_dir, f"e{epoch}.pt"))
    dist.destroy_process_group()
