import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

world_size = int(os.environ.get("WORLD_SIZE", 1))
rank = int(os.environ.get("RANK", 0))
if world_size > 1:
    dist.init_process_group("gloo")

x = torch.randn(128, 10)
data = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(data) if world_size > 1 else None
loader = DataLoader(data, batch_size=8 // world_size, shuffle=sampler is None, sampler=sampler)
model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
if world_size > 1:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
accumulate = 4

for epoch in range(4):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for i, (inputs, targets) in enumerate(loader):
        last = (i + 1) % accumulate == 0
        with contextlib.nullcontext() if last or world_size == 1 else model.no_sync():
            loss = nn.functional.mse_loss(model(inputs), targets) / accumulate
            loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
