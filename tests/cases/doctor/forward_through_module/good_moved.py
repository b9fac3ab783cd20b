"""Two models, wrapped if there are several GPUs, and moved once more in the same breath."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Vocoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(80, width), nn.ReLU(), nn.Linear(width, 256))

    def forward(self, mel):
        return self.net(mel)


def train(rank, num_gpus):
    if num_gpus > 1:
        dist.init_process_group("nccl", rank=rank, world_size=num_gpus)
    device = torch.device(f"cuda:{rank}")
    generator = Vocoder(512).to(device)
    critic = nn.Linear(256, 1).to(device)
    if num_gpus > 1:
        generator = DistributedDataParallel(generator, device_ids=[rank]).to(device)
        critic = torch.compile(DistributedDataParallel(critic, device_ids=[rank]).to(device))
    data = TensorDataset(torch.randn(1600, 80), torch.randn(1600, 256))
    sampler = DistributedSampler(data, num_gpus, rank) if num_gpus > 1 else None
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=4)
    lr = 1e-4 * num_gpus
    for_generator = torch.optim.AdamW(generator.parameters(), lr)
    for_critic = torch.optim.AdamW(critic.parameters(), lr)
    for epoch in range(100):
        if num_gpus > 1:
            sampler.set_epoch(epoch)
        for mel, audio in loader:
            mel, audio = mel.to(device), audio.to(device)
            made = generator(mel)
            loss = F.relu(1 - critic(audio)).mean() + F.relu(1 + critic(made.detach())).mean()
            for_critic.zero_grad()
            loss.backward()
            for_critic.step()
            loss = F.l1_loss(made, audio) - critic(made).mean()
            for_generator.zero_grad()
            loss.backward()
            for_generator.step()


if __name__ == "__main__":
    train(int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"]))
