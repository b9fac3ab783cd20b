"""Triplets that the data set itself makes: each sample is complete."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Triplets(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.by_class = {}
        for i, label in enumerate(labels.tolist()):
            self.by_class.setdefault(label, []).append(i)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        label = self.labels[i].item()
        same = random.choice(self.by_class[label])
        other = random.choice(self.by_class[random.choice([c for c in self.by_class if c != label])])
        return self.images[i], self.images[same], self.images[other]


class Trainer:
    def __init__(self, net, loader):
        self.net, self.loader = net.cuda(), loader
        self.loss = nn.TripletMarginLoss(margin=1.0)
        self.optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def run(self, epochs):
        for epoch in range(epochs):
            for anchor, positive, negative in self.loader:
                a, p, n = (self.net(v.cuda()) for v in (anchor, positive, negative))
                loss = self.loss(a, p, n) + (1 - nn.functional.cosine_similarity(a, p, dim=1)).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


data = Triplets(torch.randn(5000, 64), torch.randint(0, 10, (5000,)))
Trainer(nn.Linear(64, 16), DataLoader(data, batch_size=64, shuffle=True)).run(5)
