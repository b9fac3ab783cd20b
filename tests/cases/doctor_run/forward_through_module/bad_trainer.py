"""A trainer class over a data set that is slow to read."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Slow(Dataset):
    def __init__(self):
        self.x = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(0.01)
        return self.x[index], self.x[index].mean()


class Trainer:
    def __init__(self, model, data):
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=4, sampler=self.sampler)  # LS30
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def training_step(self, x, y):
        return nn.functional.mse_loss(self.model.module(x).squeeze(1), y)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                self.optimizer.zero_grad()
                self.training_step(x, y).backward()
                self.optimizer.step()  # LS10


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    Trainer(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)), Slow()).fit(2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
