"""A running mean of the weights; it is the same on all ranks because the weights are."""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.utils import save_image

from unet import UNet


class EMA:
    def __init__(self, model, decay=0.9999):
        self.decay = decay
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for mean, value in zip(self.shadow.parameters(), model.parameters()):
            mean.lerp_(value, 1 - self.decay)
        for mean, value in zip(self.shadow.buffers(), model.buffers()):
            mean.copy_(value)


def diffusion_loss(model, images, alphas):
    t = torch.randint(len(alphas), (len(images),), device=images.device)
    noise = torch.randn_like(images)
    a = alphas[t].view(-1, 1, 1, 1)
    noisy = a.sqrt() * images + (1 - a).sqrt() * noise
    return nn.functional.mse_loss(model(noisy, t), noise)


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    # Other noise on every rank.
    torch.manual_seed(1000 + rank)

    transform = T.Compose([T.Resize(64), T.RandomHorizontalFlip(), T.ToTensor()])
    dataset = ImageFolder("/data/faces", transform=transform)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(
        dataset, batch_size=32, sampler=sampler, num_workers=8, pin_memory=True, drop_last=True
    )
    model = UNet().to(device)
    ema = EMA(model)
    ddp = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4 * dist.get_world_size() ** 0.5)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), dim=0)

    step = 0
    for epoch in range(200):
        sampler.set_epoch(epoch)
        for images, _ in loader:
            loss = diffusion_loss(ddp, images.to(device, non_blocking=True), alphas)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            optimizer.step()
            ema.update(model)
            step += 1
            if step % 5000 == 0 and rank == 0:
                with torch.no_grad():
                    sample = ema.shadow(torch.randn(16, 3, 64, 64, device=device), alphas[:16])
                save_image(sample, f"samples/{step}.png")
                state = {"model": model.state_dict(), "ema": ema.shadow.state_dict(), "step": step}
                torch.save(state, f"checkpoints/{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
