"""The engine is chosen by an option: only FSDP gathers the state from all ranks."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def wrapped(model, engine, local_rank):
    if engine == "fsdp":
        return FSDP(model)
    return DDP(model, device_ids=[local_rank])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default="ddp")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    model = wrapped(nn.Linear(784, 10).cuda(local_rank), args.engine, local_rank)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "first.pt")  # LS29 possible
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
