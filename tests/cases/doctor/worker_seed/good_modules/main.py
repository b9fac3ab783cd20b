"""The generator is made in each worker, when it is first needed."""

import os

import torch
import torch.distributed as dist
from series import Windows
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    data = Windows("load.npy", 96)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2, pin_memory=True)
    model = DDP(nn.Linear(96, 24).to(device), device_ids=[device.index])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        for past, future in loader:
            loss = nn.functional.mse_loss(model(past.to(device)), future.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "forecast.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
