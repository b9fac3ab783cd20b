import argparse
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

p = argparse.ArgumentParser()
p.add_argument("--resume", default="", type=str, help="path to checkpoint")
p.add_argument("--epochs", default=8, type=int)
args = p.parse_args()
torch.manual_seed(1)
x = torch.randn(96, 6)
y = (x.sum(1) > 0).long()
data = TensorDataset(x, y)
sampler = DistributedSampler(data) if size > 1 else None
loader = DataLoader(data, batch_size=16 // size, shuffle=size == 1, sampler=sampler)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
start = 0
if args.resume:
    ck = torch.load(args.resume)
    model.load_state_dict(ck["model"])
    if rank == 0:
        opt.load_state_dict(ck["opt"])
    start = ck["epoch"]
ddp = DistributedDataParallel(model) if size > 1 else model
for epoch in range(start, args.epochs):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for a, b in loader:
        loss = nn.functional.cross_entropy(ddp(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch + 1}, "ck.pt")
        print("epoch", epoch)
