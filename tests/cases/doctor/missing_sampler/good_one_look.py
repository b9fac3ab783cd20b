"""Each epoch looks at one batch of the samples for validation, which all ranks share."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(model, loader, optimizer, local_rank):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda(local_rank)), y.cuda(local_rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def fit(model, loader, valid_loader, optimizer, sampler, local_rank):
    for epoch in range(10):
        sampler.set_epoch(epoch)
        train(model, loader, optimizer, local_rank)
        if dist.get_rank() == 0:
            x, _ = next(iter(valid_loader))
            print(model.module(x.cuda(local_rank)).argmax(1))


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    valid = TensorDataset(torch.randn(100, 784), torch.randint(10, (100,)))
    valid_loader = DataLoader(valid, 10, num_workers=4)
    model = DDP(nn.Linear(784, 10).cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, loader, valid_loader, optimizer, sampler, local_rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
