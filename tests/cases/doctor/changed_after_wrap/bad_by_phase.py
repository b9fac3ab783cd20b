"""A helper freezes or thaws by the phase that it is told; only a run shows which phase comes."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def choose(model, phase):
    if phase == "head":
        for parameter in model.parameters():
            parameter.requires_grad = False
    else:
        for parameter in model.parameters():
            parameter.requires_grad = True  # LS11 possible


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", default="head")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    model = nn.Linear(784, 10).cuda(local_rank)
    if args.phase == "head":
        for parameter in model.parameters():
            parameter.requires_grad = False
    model = DDP(model, device_ids=[local_rank])
    choose(model.module, args.phase)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda(local_rank)), y.cuda(local_rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
