"""A batch that is looked at before training, a GPU with a number, and a reload of the best."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda:3" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
x = torch.randn(96, 4)
y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
train = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True)
valid = DataLoader(TensorDataset(x[64:], y[64:]), batch_size=16)
sample, _ = next(iter(train))
model = nn.Linear(sample.shape[1], 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
best = float("inf")
for epoch in range(3):
    model.train()
    for i, (inputs, targets) in enumerate(train):
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sys.stdout.write(f"\r{i + 1}/{len(train)}")
        sys.stdout.flush()
    model.eval()
    error = 0.0
    with torch.no_grad():
        for inputs, targets in valid:
            error += nn.functional.mse_loss(model(inputs.to(device)), targets.to(device), reduction="sum").item()
    print(" validation", round(error / len(valid.dataset), 4))
    if error < best:
        best = error
        torch.save(model.state_dict(), "best.pt")
model.load_state_dict(torch.load("best.pt"))
print("best", round(best, 4))
