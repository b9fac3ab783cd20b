"""The rate is set later, in the groups of the optimizer, with a warm-up to that of all ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def adjust(optimizer, step, warmup=500):
    peak = 0.1 * dist.get_world_size()
    for group in optimizer.param_groups:
        group["lr"] = peak * min(1.0, (step + 1) / warmup)


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = DDP(nn.Linear(784, 10).to(device), device_ids=[device.index])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            adjust(optimizer, step)
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
