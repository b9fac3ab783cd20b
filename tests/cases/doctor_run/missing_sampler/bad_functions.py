"""A network with an extra head, trained on all ranks."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Curves(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.phases = torch.rand(count, generator=generator)

    def __len__(self):
        return len(self.phases)

    def __getitem__(self, index):
        x = torch.linspace(0, 6, 24) + self.phases[index]
        return {"curve": x.sin(), "phase": self.phases[index]}


def setup():
    dist.init_process_group("gloo", init_method="env://")
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def get_loaders(rank, world):
    train, val = Curves(64, 0), Curves(30, 1)
    train_loader = DataLoader(train, batch_size=8, shuffle=True)  # LS02
    val_sampler = DistributedSampler(val, world, rank, shuffle=False)
    val_loader = DataLoader(  # LS07
        val, batch_size=4, sampler=val_sampler, drop_last=True
    )
    return train_loader, val_loader


def train(model, loader, optimizer):
    for batch in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(batch["curve"]).squeeze(1), batch["phase"])
        loss.backward()
        optimizer.step()


def validate(model, loader):
    error = torch.zeros(2)
    with torch.no_grad():
        for batch in loader:
            guess = model(batch["curve"]).squeeze(1)
            error[0] += (guess - batch["phase"]).abs().sum()
            error[1] += len(guess)
    dist.all_reduce(error)
    return error[0] / error[1]


rank, world = setup()
model = nn.Sequential(nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, 1))
model = DistributedDataParallel(model, find_unused_parameters=True)  # LS13
train_loader, val_loader = get_loaders(rank, world)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    train(model, train_loader, optimizer)
    error = validate(model, val_loader)
    if rank == 0:
        print("epoch", epoch, "mae", error.item())
dist.destroy_process_group()
