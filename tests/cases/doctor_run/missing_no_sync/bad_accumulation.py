"""Gradient accumulation, with dropout: torchrun bad_accumulation.py --accumulate 2."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=2)
args = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(1234)
x = torch.randn(96, 12)
data = TensorDataset(x, x[:, :1] * 2)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
criterion = nn.MSELoss()
for epoch in range(2):
    sampler.set_epoch(epoch)
    for i, (inputs, targets) in enumerate(loader):
        loss = criterion(model(inputs), targets)
        loss.backward()
        if (i + 1) % args.accumulate == 0:
            optimizer.step()  # LS14, LS16, LS20
            optimizer.zero_grad()
dist.destroy_process_group()
