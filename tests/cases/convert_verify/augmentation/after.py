import os
import random
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Noisy(Dataset):
    def __init__(self):
        self.x = torch.tensor(np.loadtxt("numbers/series.txt"), dtype=torch.float32).view(50, 8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i] + 0.1 * torch.randn(8)
        if random.random() < 0.5:
            x = x.flip(0)
        return x.unsqueeze(1) * np.random.uniform(0.9, 1.1), x.sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.drop = nn.GRU(1, 12), nn.Dropout(0.2)
        self.out = nn.Linear(12, 1)

    def forward(self, x):
        states, _ = self.rnn(x.transpose(0, 1))
        return self.out(self.drop(states)).mean(0).squeeze(1)


def main():
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    rank = int(os.environ.get("RANK", 0))
    if world_size > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(rank)
    data = Noisy()
    sampler = DistributedSampler(data) if world_size > 1 else None
    loader = DataLoader(
        data,
        batch_size=12 // world_size,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=1,
    )
    model = Net()
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(4):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.float()), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            Path("numbers/done.txt").write_text(str(epoch))


if __name__ == "__main__":
    main()
