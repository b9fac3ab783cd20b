"""A Trainer class, one process per GPU."""

import os

import torch
import torch.nn.functional as F
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pairs(Dataset):
    def __len__(self):
        return 8192

    def __getitem__(self, index):
        return torch.full((32,), float(index)), index % 10


class Trainer:
    def __init__(self, model, loader, optimizer, accum_steps):
        self.device = int(os.environ["LOCAL_RANK"])
        self.model = DDP(model.to(self.device), device_ids=[self.device])
        self.loader = loader
        self.optimizer = optimizer
        self.accum_steps = accum_steps

    def update(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def run_epoch(self):
        self.model.train()
        for x, y in self.loader:
            self.update(x.to(self.device), y.to(self.device))

    def save(self):
        if dist.get_rank() == 0:
            torch.save(self.model.module.state_dict(), "model.pt")

    def fit(self, epochs):
        for epoch in range(epochs):
            self.loader.sampler.set_epoch(epoch)
            self.run_epoch()
            self.save()


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    data = Pairs()
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data), num_workers=4)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * dist.get_world_size())
    Trainer(model, loader, optimizer, accum_steps=4).fit(20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
