"""A diffusion trainer: every rank draws the same steps and the same noise."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from nets import UNet  # elsewhere
from shapes import ShapeDataset

SEED = 0


class Trainer:
    def __init__(self, data, steps=1000):
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        self.model = DistributedDataParallel(
            UNet(dim=64).to(self.device), device_ids=[self.device.index]
        )
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, 32, sampler=self.sampler, num_workers=4)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4)
        self.steps = steps
        self.alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps), 0).to(self.device)

    def step(self, images):
        images = images.to(self.device)
        t = torch.randint(0, self.steps, (len(images),), device=self.device)
        noise = torch.randn_like(images)
        a = self.alphas[t].view(-1, 1, 1, 1)
        noisy = a.sqrt() * images + (1 - a).sqrt() * noise
        loss = F.mse_loss(self.model(noisy, t), noise)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for images in self.loader:
                self.step(images)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(SEED)  # LS20
    trainer = Trainer(ShapeDataset("shapes"))
    trainer.fit(100)
    if dist.get_rank() == 0:
        torch.save(trainer.model.module.state_dict(), "unet.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
