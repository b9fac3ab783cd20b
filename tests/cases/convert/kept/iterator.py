# Exported from a notebook: steps are counted, batches come from next().
import itertools

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

# %%
dataset = TensorDataset(torch.randn(1000, 8), torch.randn(1000, 1))
train_iter = itertools.cycle(DataLoader(dataset, batch_size=50, shuffle=True))
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters())

# %%
for step in range(2000):
    x, y = next(train_iter)
    loss = nn.MSELoss()(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
