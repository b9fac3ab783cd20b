"""A GAN with two optimizers, on 8x8 digits, with Accelerate.

`split_batches=True` keeps the global batch on any number of processes.

python examples/side_by_side/gan_accelerate.py
torchrun --nproc-per-node 2 examples/side_by_side/gan_accelerate.py
"""

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from ending import finish
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from lockstep.data import digits

LATENT = 16


class Generator(nn.Module):
    """From noise to an image of 64 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(LATENT, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid()
        )

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        """Return one image for each row of noise."""
        return self.body(noise)


class Discriminator(nn.Module):
    """From an image to one score: is it real?"""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(64, 1)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one score per image."""
        return self.body(images).squeeze(1)


def main() -> None:
    """Train for three epochs."""
    loading = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=loading)
    set_seed(0)
    data = [(image.flatten().float() / 16, label) for image, label in digits().train][:500]
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(data, batch_size=64, shuffle=True, generator=order)
    generator, discriminator = Generator(), Discriminator()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    generator, discriminator, g_optimizer, d_optimizer, loader = accelerator.prepare(
        generator, discriminator, g_optimizer, d_optimizer, loader
    )

    def fakes(images: torch.Tensor) -> torch.Tensor:
        return generator(torch.randn(len(images), LATENT, device=accelerator.device))

    for _ in range(3):
        d_losses, g_losses = [], []
        for images, _ in loader:
            real, fake = discriminator(images), discriminator(fakes(images).detach())
            d_loss = (F.softplus(-real) + F.softplus(fake)).mean()
            d_optimizer.zero_grad()
            accelerator.backward(d_loss)
            d_optimizer.step()
            g_loss = F.softplus(-discriminator(fakes(images))).mean()
            g_optimizer.zero_grad()
            accelerator.backward(g_loss)
            g_optimizer.step()
            d_losses.append(accelerator.gather(d_loss.detach()).mean().item())
            g_losses.append(accelerator.gather(g_loss.detach()).mean().item())
    d_loss, g_loss = sum(d_losses) / len(d_losses), sum(g_losses) / len(g_losses)
    models = accelerator.unwrap_model(generator), accelerator.unwrap_model(discriminator)
    finish(d_loss, *models, generator_loss=g_loss)
    accelerator.end_training()


if __name__ == "__main__":
    main()
