# refused: layer_local
"""Greedy layers: each is trained by a small classifier of its own."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(layers, heads, optimizers, loader, epochs):
    for epoch in range(epochs):
        for x, y in loader:
            h = x
            for layer, head, optimizer in zip(layers, heads, optimizers):
                h = layer(h.detach())
                loss = F.cross_entropy(head(h), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
    heads = nn.ModuleList([nn.Linear(64, 10) for _ in range(4)])
    optimizers = [
        torch.optim.Adam([*a.parameters(), *b.parameters()]) for a, b in zip(layers, heads)
    ]
    data = TensorDataset(torch.randn(6000, 64), torch.randint(0, 10, (6000,)))
    train(layers, heads, optimizers, DataLoader(data, batch_size=64, shuffle=True), 5)
