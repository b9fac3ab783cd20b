"""Gradient accumulation on every rank; optimizer and data come from other modules."""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from loading import make_loader
from optimizers import make_optimizer
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 4


def main():
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).to(device)
    model = DDP(model, device_ids=[device.index])
    optimizer = make_optimizer(model)
    loader, sampler = make_loader()
    whole = len(loader) // STEPS * STEPS
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            if number == whole:
                break
            last = (number + 1) % STEPS == 0
            with nullcontext() if last else model.no_sync():
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device)) / STEPS
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "mlp.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
