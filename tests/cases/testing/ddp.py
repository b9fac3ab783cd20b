"""Plain DDP, as it should be; each --bug is one that people write."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--bug", default="")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--samples", type=int, default=64)
given = parser.parse_args()
bug, samples = given.bug, given.samples

dist.init_process_group("gloo")
rank, size = dist.get_rank(), int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
x, y = torch.randn(samples, 6), torch.randint(0, 3, (samples,))
data = TensorDataset(x, y)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))

if bug == "seed":
    # The ranks cut different orders of the samples, so some are taken twice and some never.
    torch.manual_seed(rank)
    data = Subset(data, torch.randperm(samples).tolist())

ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
batch = 16 if bug == "batch" else 16 // size
if bug in ("uneven", "weighted"):
    own = Subset(data, range(rank, samples, size))
    sampler, loader = None, DataLoader(own, batch)
else:
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch, sampler=sampler)

for epoch in range(given.epochs):
    if sampler is not None and bug != "epoch":
        sampler.set_epoch(epoch)
    for inputs, targets in loader:
        if bug == "crash" and size > 1 and rank == 1:
            raise RuntimeError("no such class")
        if bug == "hang" and size > 1 and rank == 1:
            dist.barrier()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(inputs), targets)
        if bug == "weighted":
            count = torch.tensor(float(len(targets)))
            dist.all_reduce(count)
            loss = loss * len(targets) * size / count
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
