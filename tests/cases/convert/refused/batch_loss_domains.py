# refused: batch_loss
"""Two domains, brought together by their mean discrepancy."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MMD(nn.Module):
    def kernel(self, source, target):
        total = torch.cat([source, target], dim=0)
        rows = total.unsqueeze(0).expand(len(total), len(total), total.size(1))
        columns = total.unsqueeze(1).expand(len(total), len(total), total.size(1))
        distance = ((rows - columns) ** 2).sum(2)
        return torch.exp(-distance / distance.mean())

    def forward(self, source, target):
        n = len(source)
        k = self.kernel(source, target)
        return (k[:n, :n] + k[n:, n:] - k[:n, n:] - k[n:, :n]).mean()


net, head, mmd = nn.Linear(50, 20), nn.Linear(20, 5), MMD()
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01)
sources = DataLoader(TensorDataset(torch.randn(999, 50), torch.zeros(999).long()), 64, shuffle=True)
targets = DataLoader(TensorDataset(torch.randn(999, 50)), batch_size=64, shuffle=True)
for epoch in range(10):
    for (xs, ys), (xt,) in zip(sources, targets):
        fs, ft = net(xs), net(xt)
        loss = nn.functional.cross_entropy(head(fs), ys) + mmd(fs, ft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
