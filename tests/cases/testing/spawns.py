"""Plain DDP that starts its own ranks; with --bug, each takes the whole batch of its own data."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def work(rank, size, bug):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("MASTER_PORT", "29533")}
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(rank if bug else 0)
    data = torch.randn(64, 6)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in data.split(16):
        optimizer.zero_grad()
        model(batch[rank::size]).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int)
    parser.add_argument("--bug", action="store_true")
    given = parser.parse_args()
    mp.spawn(work, (given.replicas, given.bug), nprocs=given.replicas)
