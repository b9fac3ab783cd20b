"""The first epochs update the model by hand, the others with an optimizer; DDP averages in both."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def warm_up(params, rate):
    with torch.no_grad():
        for p in params:
            p -= rate * p.grad


data = TensorDataset(torch.randn(4096, 35), torch.randint(0, 4, (4096,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(35, 64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters())

for epoch in range(2):
    for x, y in loader:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for name, p in model.named_parameters():
            p.data.add_(p.grad, alpha=-0.01)

for epoch in range(2):
    for x, y in loader:
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        warm_up(model.parameters(), 0.1)

for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
