"""Clips what is not there yet, and sums what DDP averages."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(64, 5)
data = TensorDataset(x, x.sum(1, keepdim=True))
loader = DataLoader(data, 4, sampler=DistributedSampler(data))
model = DDP(nn.Linear(5, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets, reduction="sum")
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # LS19
    loss.backward()
    optimizer.step()  # LS32
dist.destroy_process_group()
