# refused: by_hand
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Linear(10, 1)
velocity = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
loader = DataLoader(TensorDataset(torch.randn(640, 10), torch.randn(640, 1)), 32, shuffle=True)
for epoch in range(20):
    for x, y in loader:
        net.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        with torch.no_grad():
            for name, p in net.named_parameters():
                step = 0.9 * velocity[name] + p.grad
                velocity[name] = step
                p -= 0.01 * step
