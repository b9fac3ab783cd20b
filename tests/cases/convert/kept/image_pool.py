"""CycleGAN's pool of fakes: drawn and filled in one go, beside the batch."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ImagePool:
    def __init__(self, size=50):
        self.size, self.images = size, []

    def query(self, images):
        out = []
        for image in images.detach():
            if len(self.images) < self.size:
                self.images.append(image)
                out.append(image)
            elif random.random() > 0.5:
                i = random.randint(0, self.size - 1)
                out.append(self.images[i].clone())
                self.images[i] = image
            else:
                out.append(image)
        return torch.stack(out)


def train(opt_epochs=100):
    G, D, pool = nn.Linear(64, 64).cuda(), nn.Linear(64, 1).cuda(), ImagePool()
    optimizer_G = torch.optim.Adam(G.parameters(), lr=2e-4)
    optimizer_D = torch.optim.Adam(D.parameters(), lr=2e-4)
    loader = DataLoader(TensorDataset(torch.randn(1000, 64), torch.randn(1000, 64)), batch_size=1)
    for epoch in range(opt_epochs):
        for a, b in loader:
            fake = G(a.cuda())
            loss_G = ((D(fake) - 1) ** 2).mean() + (fake - b.cuda()).abs().mean()
            optimizer_G.zero_grad()
            loss_G.backward()
            optimizer_G.step()
            loss_D = ((D(b.cuda()) - 1) ** 2).mean() + (D(pool.query(fake)) ** 2).mean()
            optimizer_D.zero_grad()
            loss_D.backward()
            optimizer_D.step()


train()
