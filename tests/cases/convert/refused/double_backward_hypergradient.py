# refused: double_backward
"""A learning rate that is learned: the gradient of the step's gradient."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(256, 8), torch.randn(256, 1)), batch_size=32)
model = nn.Linear(8, 1)
rate = torch.tensor(0.1, requires_grad=True)
meta = torch.optim.SGD([rate], lr=1e-3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        weight, bias = (p - rate * g for p, g in zip(model.parameters(), slopes))
        meta.zero_grad()
        nn.functional.mse_loss(nn.functional.linear(x, weight, bias), y).backward()
        meta.step()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
