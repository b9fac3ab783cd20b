import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

world_size = int(os.environ.get("WORLD_SIZE", 1))
rank = int(os.environ.get("RANK", 0))
if world_size > 1:
    dist.init_process_group("gloo")

data = TensorDataset(torch.randn(96, 6))
sampler = DistributedSampler(data, drop_last=True) if world_size > 1 else None
loader = DataLoader(
    data,
    batch_size=16 // world_size,
    shuffle=sampler is None,
    sampler=sampler,
    drop_last=True,
)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(16, 1))
if world_size > 1:
    generator = DistributedDataParallel(generator)
    critic = DistributedDataParallel(critic, broadcast_buffers=False)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()

for epoch in range(3):
    if sampler is not None:
        sampler.set_epoch(epoch)
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
