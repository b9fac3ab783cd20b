"""A small GPT on random parts of one long text."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

data = np.memmap("train.bin", dtype=np.uint16, mode="r")
block_size, batch_size = 256, 64


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.register_buffer("mask", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        att = q @ k.transpose(-2, -1) / k.size(-1) ** 0.5
        att = att.masked_fill(self.mask[: x.size(1), : x.size(1)] == 0, float("-inf"))
        return F.softmax(att, dim=-1) @ v


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(65, 128)
        self.position = nn.Embedding(block_size, 128)
        self.block = Attention(128)
        self.head = nn.Linear(128, 65)
        self.head.weight = nn.Parameter(self.head.weight @ torch.eye(128))

    def forward(self, x, targets):
        where = torch.arange(x.size(1), device=x.device)
        distance = where[None, :] - where[:, None]
        h = self.block(self.embed(x) + self.position(where)) - 0 * distance.sum()
        logits = self.head(h)
        return logits, F.cross_entropy(logits.view(-1, 65), targets.view(-1))


def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x.cuda(), y.cuda()


model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
X, Y = get_batch()
iter_num = 0
while iter_num < 5000:
    logits, loss = model(X, Y)
    X, Y = get_batch()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    iter_num += 1
