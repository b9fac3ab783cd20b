"""A GAN with two optimizers, on 8x8 digits.

python examples/loop/gan.py                                      # one process
torchrun --nproc-per-node 2 examples/loop/gan.py                 # two replicas: the same bits
lockstep train examples/loop/gan.py --replicas 2 --out runs/gan  # with restarts and a report
"""

import torch
from torch import nn
from torch.nn import functional as F

import lockstep

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
    digits = lockstep.data.digits().train
    data = [(image.flatten().float() / 16, label) for image, label in digits][:500]
    with lockstep.Loop(global_batch=64, exact=True) as loop:
        generator, discriminator = loop.model(Generator()), loop.model(Discriminator())
        g_adam = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
        d_adam = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
        g_optimizer = loop.optimizer(g_adam, name="generator")
        d_optimizer = loop.optimizer(d_adam, name="discriminator")
        batches = loop.batches(data)

        def fakes(images: torch.Tensor) -> torch.Tensor:
            # Random numbers inside a loss are keyed by step and shard.
            return generator(torch.randn(len(images), LATENT, device=images.device))

        def discriminator_loss(batch):
            images, _ = batch
            real, fake = discriminator(images), discriminator(fakes(images).detach())
            return (F.softplus(-real) + F.softplus(fake)).sum(), len(images)

        def generator_loss(batch):
            images, _ = batch
            return F.softplus(-discriminator(fakes(images))).sum(), len(images)

        for epoch in loop.epochs(3):
            for batch in batches:
                loop.step(batch, discriminator_loss, d_optimizer)
                loop.step(batch, generator_loss, g_optimizer)
            losses = [loop.logged[f"loss_{name}"] for name in ("discriminator", "generator")]
            loop.say(f"epoch {epoch}: discriminator {losses[0]:.4f}, generator {losses[1]:.4f}")


if __name__ == "__main__":
    main()
