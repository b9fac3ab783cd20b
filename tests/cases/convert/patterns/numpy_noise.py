"""A GAN with latents from NumPy, and augmentation with random."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

np.random.seed(0)
random.seed(0)
torch.manual_seed(0)


class Points(Dataset):
    def __init__(self, n):
        angles = np.random.uniform(0, 6.28, n)
        self.points = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        point = self.points[i]
        if random.random() < 0.5:
            point = -point
        return torch.from_numpy(point + np.random.normal(0, 0.05, 2).astype(np.float32))


loader = DataLoader(Points(128), batch_size=32, shuffle=True)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for epoch in range(2):
    for real in loader:
        z = torch.from_numpy(np.random.randn(len(real), 4)).float()
        fake = G(z)
        opt_d.zero_grad()
        d_loss = bce(D(real), torch.ones(len(real), 1)) + bce(D(fake.detach()), torch.zeros(len(real), 1))
        d_loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        g_loss = bce(D(fake), torch.ones(len(real), 1))
        g_loss.backward()
        opt_g.step()
    print(epoch, "D", round(d_loss.item(), 4), "G", round(g_loss.item(), 4))
