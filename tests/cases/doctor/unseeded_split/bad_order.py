"""Each rank cuts its list of files in an order of its own."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Files(Dataset):
    def __init__(self, count):
        names = [f"part-{n}.pt" for n in range(count)]
        random.shuffle(names)  # LS04 possible
        self.names = names[: count // 2]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return torch.load(self.names[index], map_location="cpu")


dist.init_process_group("gloo")
data = Files(500)
sampler = DistributedSampler(data)
loader = DataLoader(data, 8, sampler=sampler, num_workers=2)
model = DistributedDataParallel(nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(int(os.environ["EPOCHS"])):
    sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
dist.destroy_process_group()
