"""Gradients are averaged by hand for one of two models; DDP is there for the other paths."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def run():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    model = DDP(nn.Linear(20, 2).cuda(gpu), device_ids=[gpu])
    data = TensorDataset(torch.randn(512, 20), torch.randint(2, (512,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * dist.get_world_size())
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            # Second derivatives do not go through the wrapper.
            out = model.module(x.cuda(gpu).requires_grad_())
            loss = nn.functional.cross_entropy(out, y.cuda(gpu))
            loss.backward()
            average_gradients(model)
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "linear.pt")


if __name__ == "__main__":
    run()
