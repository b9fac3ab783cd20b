"""A GAN with two optimizers, on 8x8 digits, on one GPU.

python examples/side_by_side/gan_one_gpu.py
"""

import torch
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
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = [(image.flatten().float() / 16, label) for image, label in digits().train][:500]
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(data, batch_size=64, shuffle=True, generator=order)
    generator, discriminator = Generator().to(device), Discriminator().to(device)
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))

    def fakes(images: torch.Tensor) -> torch.Tensor:
        return generator(torch.randn(len(images), LATENT, device=device))

    for _ in range(3):
        d_losses, g_losses = [], []
        for images, _ in loader:
            images = images.to(device)
            real, fake = discriminator(images), discriminator(fakes(images).detach())
            d_loss = (F.softplus(-real) + F.softplus(fake)).mean()
            d_optimizer.zero_grad()
            d_loss.backward()
            d_optimizer.step()
            g_loss = F.softplus(-discriminator(fakes(images))).mean()
            g_optimizer.zero_grad()
            g_loss.backward()
            g_optimizer.step()
            d_losses.append(d_loss.item())
            g_losses.append(g_loss.item())
    d_loss, g_loss = sum(d_losses) / len(d_losses), sum(g_losses) / len(g_losses)
    finish(d_loss, generator, discriminator, generator_loss=g_loss)


if __name__ == "__main__":
    main()
