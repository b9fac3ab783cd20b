"""A GAN that switches its critic off and on, and a teacher that is frozen as a whole."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def switch(model, on):
    for p in model.parameters():
        p.requires_grad = on


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    maker = DDP(nn.Linear(8, 2).cuda(), device_ids=[gpu])
    critic = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1)).cuda(), [gpu])
    teacher = DDP(nn.Linear(2, 1).cuda(), device_ids=[gpu])
    for p in teacher.parameters():
        p.requires_grad = False
    data = TensorDataset(torch.randn(2000, 2))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=100, sampler=sampler, num_workers=2)
    lr = 1e-4 * dist.get_world_size()
    for_maker = torch.optim.Adam(maker.parameters(), lr=lr)
    for_critic = torch.optim.Adam(critic.parameters(), lr=lr)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for (real,) in loader:
            for p in critic.parameters():
                p.requires_grad = True
            fake = maker(torch.randn(len(real), 8, device="cuda"))
            scores = critic(torch.cat([real.cuda(), fake.detach()]))
            loss = scores[len(real) :].mean() - scores[: len(real)].mean()
            for_critic.zero_grad()
            loss.backward()
            for_critic.step()
            for p in critic.parameters():
                p.requires_grad = False
            loss = F.mse_loss(teacher(fake), torch.ones_like(fake[:, :1])) - critic(fake).mean()
            for_maker.zero_grad()
            loss.backward()
            for_maker.step()
            switch(critic, True)


if __name__ == "__main__":
    main()
