"""A sum that a helper of another file divides by the batch, and one that it does not divide."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from losses import reconstruction, weight_penalty

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.rand(64, 8)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(3):
    for (x,) in loader:
        loss = reconstruction(model(x), x) + weight_penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.4f}")
