"""Mini-batches cut by hand from tensors, in a shuffled order."""

import torch
from torch import nn

X, Y = torch.randn(10000, 30), torch.randint(0, 3, (10000,))
model = nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
batch_size = 100
for epoch in range(20):
    order = torch.randperm(len(X))
    for start in range(0, len(X), batch_size):
        rows = order[start : start + batch_size]
        loss = criterion(model(X[rows].cuda()), Y[rows].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
