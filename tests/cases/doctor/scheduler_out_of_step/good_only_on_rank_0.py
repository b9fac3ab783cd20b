"""Rank 0 alone holds a critic with an optimizer of its own; no other rank misses its step."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    data = TensorDataset(torch.randn(1000, 784), torch.randint(10, (1000,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler, num_workers=4)
    model = DDP(nn.Linear(784, 10).cuda(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    critic_schedule = None
    if dist.get_rank() == 0:
        critic = nn.Linear(10, 1).cuda(local_rank)
        critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
        critic_schedule = torch.optim.lr_scheduler.StepLR(critic_optimizer, 10)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda(local_rank)), y.cuda(local_rank))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if critic_schedule is not None:
            critic_schedule.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
