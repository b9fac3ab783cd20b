# refused: replay_buffer
"""Continual learning: earlier samples are seen again."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Learner:
    def __init__(self, net, size=2000):
        self.net = net.cuda()
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.03)
        self.buffer = []
        self.size = size

    def observe(self, x, y):
        loss = F.cross_entropy(self.net(x), y)
        if self.buffer:
            old = random.sample(self.buffer, min(32, len(self.buffer)))
            bx, by = torch.stack([o[0] for o in old]), torch.stack([o[1] for o in old])
            loss = loss + F.cross_entropy(self.net(bx), by)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for pair in zip(x, y):
            if len(self.buffer) < self.size:
                self.buffer.append(pair)

    def learn(self, tasks):
        for task in tasks:
            loader = DataLoader(task, batch_size=32, shuffle=True)
            for x, y in loader:
                self.observe(x.cuda(), y.cuda())


tasks = [TensorDataset(torch.randn(1000, 10), torch.randint(0, 2, (1000,))) for _ in range(5)]
Learner(nn.Linear(10, 2)).learn(tasks)
