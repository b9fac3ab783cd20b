"""A GAN whose generator learns every fifth step."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

N_CRITIC = 5


def main():
    dist.init_process_group("nccl")
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    G = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2)).to(gpu), device_ids=[gpu])
    D = DDP(nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1)).to(gpu), device_ids=[gpu])
    lr = 1e-4 * dist.get_world_size()
    opt_g = torch.optim.Adam(G.parameters(), lr=lr)
    opt_d = torch.optim.Adam(D.parameters(), lr=lr)
    data = TensorDataset(torch.randn(4096, 2))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2)
    for epoch in range(50):
        sampler.set_epoch(epoch)
        for i, (real,) in enumerate(loader):
            real = real.to(gpu)
            noise = torch.randn(len(real), 16, device=gpu)
            fake = G(noise).detach()
            d_loss = F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()
            opt_d.zero_grad()
            d_loss.backward()
            torch.nn.utils.clip_grad_norm_(D.parameters(), 1.0)
            opt_d.step()
            if i % N_CRITIC == 0:
                g_loss = F.softplus(-D(G(noise))).mean()
                opt_g.zero_grad()
                g_loss.backward()
                torch.nn.utils.clip_grad_norm_(G.parameters(), 1.0)
                opt_g.step()
        if dist.get_rank() == 0:
            torch.save(G.module.state_dict(), "generator.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
