import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--resume", default="", type=str, help="path to checkpoint")
p.add_argument("--epochs", default=8, type=int)
args = p.parse_args()
torch.manual_seed(1)
x = torch.randn(96, 6)
y = (x.sum(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
start = 0
if args.resume:
    ck = torch.load(args.resume)
    model.load_state_dict(ck["model"])
    opt.load_state_dict(ck["opt"])
    start = ck["epoch"]
for epoch in range(start, args.epochs):
    for a, b in loader:
        loss = nn.functional.cross_entropy(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch + 1}, "ck.pt")
    print("epoch", epoch)
