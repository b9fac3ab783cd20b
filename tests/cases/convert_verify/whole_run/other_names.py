import csv
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if size > 1:
    dist.init_process_group("gloo")
torch.manual_seed(1)
x = torch.randn(96, 6)
y = (x.sum(1) > 0).long()
data = TensorDataset(x[:64], y[:64])
sampler = DistributedSampler(data) if size > 1 else None
train_loader = DataLoader(data, batch_size=16 // size, shuffle=size == 1, sampler=sampler)
model = nn.Linear(6, 2)
ddp = DistributedDataParallel(model) if size > 1 else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with open("log.csv" if rank == 0 else os.devnull, "w") as log:
    writer = csv.writer(log)
    for epoch in range(3):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for inputs, targets in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(inputs), targets)
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        if size > 1:
            dist.all_reduce(mean)
            mean /= size
        writer.writerow([epoch, round(mean.item(), 3)])
if rank == 0:
    torch.save({"net": ddp.state_dict(), "epochs": 3}, "last.pt")
with torch.no_grad():
    right = (model(x[64:]).argmax(1) == y[64:]).sum().item()
if rank == 0:
    print(f"test accuracy {right / 32:.3f}")
if size > 1:
    dist.destroy_process_group()
