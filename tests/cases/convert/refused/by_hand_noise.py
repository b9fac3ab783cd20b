# refused: by_hand
"""Langevin dynamics: every replica would add noise of its own."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(4096, 35), torch.randint(0, 4, (4096,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Linear(35, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

for epoch in range(5):
    for x, y in loader:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p.data.add_(-0.01 * p.grad + 0.1 * torch.randn_like(p))
