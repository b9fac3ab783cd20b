# refused: by_hand
"""One model has an optimizer, the other is updated by hand: nobody would wrap that one."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(4096, 35), torch.randint(0, 4, (4096,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
first, second = nn.Linear(35, 4), nn.Linear(35, 4)
optimizer = torch.optim.SGD(first.parameters(), lr=0.1)

for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(first(x), y).backward()
        optimizer.step()

for epoch in range(5):
    for x, y in loader:
        second.zero_grad()
        F.cross_entropy(second(x), y).backward()
        for p in second.parameters():
            p.data.add_(p.grad, alpha=-0.01)
