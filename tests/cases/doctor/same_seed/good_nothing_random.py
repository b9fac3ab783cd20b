"""The same seed everywhere, for equal weights; nothing is random afterwards."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.manual_seed(0)
dist.init_process_group("gloo")
rank = dist.get_rank()

weights = torch.randn(32, 1)
inputs = torch.randn(8192, 32)
data = TensorDataset(inputs, inputs @ weights)
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=1)

model = DDP(nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Dropout(0), nn.Linear(64, 1)))
lr = 0.01 * int(os.environ["WORLD_SIZE"])
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
for epoch in range(10):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if rank == 0:
    torch.save(model.module.state_dict(), "line.pt")
dist.destroy_process_group()
