# refused: batch_loss
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def partial_likelihood(risk, time, event):
    order = torch.argsort(time, descending=True)
    risk, event = risk[order], event[order]
    return -((risk - torch.logcumsumexp(risk, dim=0)) * event).sum() / event.sum()


net = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1))
data = TensorDataset(torch.randn(900, 30), torch.rand(900), torch.ones(900))
optimizer = optim.Adam(net.parameters())
for epoch in range(50):
    for x, time, event in DataLoader(data, batch_size=300, shuffle=True):
        optimizer.zero_grad()
        loss = partial_likelihood(net(x).squeeze(1), time, event)
        loss.backward()
        optimizer.step()
