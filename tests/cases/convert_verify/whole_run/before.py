import csv

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
x = torch.randn(96, 6)
y = (x.sum(1) > 0).long()
train_loader = DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with open("log.csv", "w") as log:
    writer = csv.writer(log)
    for epoch in range(3):
        for inputs, targets in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
        writer.writerow([epoch, round(loss.item(), 3)])
torch.save({"net": model.state_dict(), "epochs": 3}, "last.pt")
with torch.no_grad():
    right = (model(x[64:]).argmax(1) == y[64:]).sum().item()
print(f"test accuracy {right / 32:.3f}")
