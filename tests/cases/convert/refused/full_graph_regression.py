# refused: full_graph
"""All rows in every step."""

import pandas as pd
import torch
from torch import nn

table = pd.read_csv("houses.csv")
x = torch.tensor(table.drop(columns="price").values, dtype=torch.float32)
y = torch.tensor(table["price"].values, dtype=torch.float32).unsqueeze(1)

net = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 1))
loss_fn = nn.MSELoss()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)

for step in range(1000):
    pred = net(x)
    loss = loss_fn(pred, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, loss.item())
torch.save(net.state_dict(), "net.pt")
