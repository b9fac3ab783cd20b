"""A loader of one's own that moves through the text, and starts again at its end."""

import torch
from torch import nn
from torch.nn import functional as F


class Tokens:
    def __init__(self, B, T):
        self.B, self.T = B, T
        self.tokens = torch.load("tokens.pt")
        self.position = 0

    def next_batch(self):
        B, T = self.B, self.T
        part = self.tokens[self.position : self.position + B * T + 1]
        x, y = part[:-1].view(B, T), part[1:].view(B, T)
        self.position += B * T
        if self.position + B * T + 1 > len(self.tokens):
            self.position = 0
        return x, y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50257, 64), nn.Linear(64, 50257)

    def forward(self, x, y):
        return F.cross_entropy(self.head(self.embed(x)).flatten(0, 1), y.flatten())


train_loader = Tokens(4, 32)
model = Model().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(50):
    optimizer.zero_grad()
    loss_accum = 0.0
    for micro_step in range(8):
        x, y = train_loader.next_batch()
        loss = model(x.to("cuda"), y.to("cuda")) / 8
        loss_accum += loss.detach()
        loss.backward()
    optimizer.step()
    print(step, loss_accum.item())
