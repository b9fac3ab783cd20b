"""Every rank has its part of the data, and nothing brings the gradients together."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(64, 5)
data = TensorDataset(x, x.sum(1, keepdim=True))
loader = DataLoader(data, 4, sampler=DistributedSampler(data))
model = nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in loader:
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # LS31
dist.destroy_process_group()
