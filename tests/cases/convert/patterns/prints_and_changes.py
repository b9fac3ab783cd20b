"""Functions that print and also change something, and a resume."""
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(96, 6)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adjust_learning_rate(epoch):
    rate = 0.1 * 0.5**epoch
    for group in optimizer.param_groups:
        group["lr"] = rate
    print(f"learning rate is now {rate}")


def load_checkpoint(path):
    if not os.path.exists(path):
        print("no checkpoint, starting anew")
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print("resumed after epoch", state["epoch"])
    return state["epoch"] + 1


def save_and_decay(epoch, path):
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    for group in optimizer.param_groups:
        group["weight_decay"] += 1e-3
    print("saved", path)


for epoch in range(load_checkpoint("last.pt"), 2):
    adjust_learning_rate(epoch)
    total = 0.0
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
    save_and_decay(epoch, "last.pt")
