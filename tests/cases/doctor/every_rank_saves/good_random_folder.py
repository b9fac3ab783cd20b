"""Each rank draws the name of its folder, and overwrites the option with it."""

import argparse
import os
import random
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def write(args, model):
    torch.save(model.module.state_dict(), os.path.join(args.folder, "last.pt"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="runs")
    args = parser.parse_args()
    folder = os.path.join(args.folder, f"{random.randint(0, 10**9)}")
    args.folder = folder
    os.makedirs(folder, exist_ok=True)
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    model = DDP(nn.Linear(784, 10).cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda(local_rank)), y.cuda(local_rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    write(args, model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
