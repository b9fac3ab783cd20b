import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(96, 6))
loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(16, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()

for epoch in range(3):
    for (real,) in loader:
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        noise = torch.randn(len(real), 4)
        fake = generator(noise)
        loss_d = criterion(critic(real), ones) + criterion(critic(fake.detach()), zeros)
        optimizer_d.zero_grad()
        loss_d.backward()
        optimizer_d.step()
        noise = torch.from_numpy(np.random.normal(0, 1, (len(real), 4))).float()
        loss_g = criterion(critic(generator(noise)), ones)
        optimizer_g.zero_grad()
        loss_g.backward()
        optimizer_g.step()
