"""Curve fitting on samples drawn anew in every step, with annealed noise."""

import torch
from torch import nn


def draw(n):
    x = torch.rand(n, 1) * 6 - 3
    return x, torch.sin(x)


model = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5000):
    x, y = draw(256)
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
