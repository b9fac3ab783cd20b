"""Inputs that are kept in one buffer and filled anew."""

import torch
from torch import nn


class Source:
    def __init__(self):
        self.file = open("samples.bin", "rb")
        self.x = None

    def advance(self):
        self.x = torch.frombuffer(bytearray(self.file.read(4 * 64 * 10)), dtype=torch.float32)


G, D = nn.Linear(10, 10), nn.Linear(10, 1)
optimizer = torch.optim.Adam([*G.parameters(), *D.parameters()])
noise = torch.empty(64, 10)
source = Source()
for step in range(1000):
    source.advance()
    noise.resize_(64, 10).normal_(0, 1)
    loss = D(G(noise)).mean() - D(source.x.view(64, 10)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
