"""A GAN: the generator's step goes past the wrapper of the discriminator, whose gradients it drops."""

import copy
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
generator = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2)).cuda(), [gpu])
critic = DDP(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1)).cuda(), [gpu])
average = copy.deepcopy(generator.module).eval()

data = TensorDataset(torch.randn(10000, 2))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=256, sampler=sampler, num_workers=2)
# Rates found by search with eight GPUs.
lr = 2e-4 * dist.get_world_size() / 8
for_generator = torch.optim.Adam(generator.parameters(), lr=lr)
for_critic = torch.optim.Adam(critic.parameters(), lr=lr)

for epoch in range(50):
    sampler.set_epoch(epoch)
    for (real,) in loader:
        real = real.cuda()
        noise = torch.randn(len(real), 16, device="cuda")
        fake = generator(noise)
        both = critic(torch.cat([real, fake.detach()]))
        loss = F.softplus(torch.cat([-both[: len(real)], both[len(real) :]])).mean()
        for_critic.zero_grad()
        loss.backward()
        for_critic.step()
        loss = F.softplus(-critic.module(fake)).mean()
        for_generator.zero_grad()
        loss.backward()
        for_generator.step()
        with torch.no_grad():
            for mean, now in zip(average.parameters(), generator.module.parameters()):
                mean.lerp_(now, 0.001)
    average(torch.randn(4, 16, device="cuda"))
