"""Samples in a list that is full before training begins; batches are drawn from it."""

import json
import random

import torch
from torch import nn

samples = []
with open("train.jsonl") as file:
    for line in file:
        record = json.loads(line)
        samples.append((torch.tensor(record["x"]), record["y"]))

model = nn.Linear(50, 5)
optimizer = torch.optim.Adam(model.parameters())
losses = []
for step in range(1, 10001):
    batch = random.sample(samples, 64)
    x = torch.stack([s[0] for s in batch])
    y = torch.tensor([s[1] for s in batch])
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
