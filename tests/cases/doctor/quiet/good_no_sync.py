"""Gradient accumulation that exchanges gradients once per step."""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATE = 4
BATCH_SIZE = 32
BASE_LR = 0.01
EPOCHS = 5


def build_data():
    gen = torch.Generator().manual_seed(123)
    inputs = torch.randn(8192, 64, generator=gen)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def windows(loader):
    """Lists of batches that make one step; the last may be shorter."""
    window = []
    for batch in loader:
        window.append(batch)
        if len(window) == ACCUMULATE:
            yield window
            window = []
    if window:
        yield window


def train_epoch(model, loader, optimizer, device):
    model.train()
    for window in windows(loader):
        optimizer.zero_grad(set_to_none=True)
        for i, (x, y) in enumerate(window):
            sync = i == len(window) - 1
            context = nullcontext() if sync else model.no_sync()
            with context:
                x, y = x.to(device), y.to(device)
                loss = nn.functional.mse_loss(model(x), y) / len(window)
                loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()


def run():
    dist.init_process_group("nccl")
    try:
        local_rank = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        data = build_data()
        sampler = DistributedSampler(data, shuffle=True, drop_last=True)
        loader = DataLoader(
            data, batch_size=BATCH_SIZE, sampler=sampler, num_workers=2, persistent_workers=True
        )
        net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1)).to(device)
        model = DistributedDataParallel(net, device_ids=[local_rank])
        effective = BATCH_SIZE * ACCUMULATE * dist.get_world_size()
        optimizer = optim.SGD(model.parameters(), lr=BASE_LR * effective / 256, momentum=0.9)
        for epoch in range(EPOCHS):
            loader.sampler.set_epoch(epoch)
            train_epoch(model, loader, optimizer, device)
            if dist.get_rank() == 0:
                print(f"epoch {epoch} done")
                torch.save({"model": net.state_dict(), "epoch": epoch}, f"epoch{epoch}.pt")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    run()
