"""Gradient accumulation with activation checkpointing, on one GPU.

A batch of 128 is 16 micro-batches of 8.

python examples/side_by_side/accumulation_one_gpu.py
"""

import torch
from ending import finish
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from lockstep.data import digits

BATCH, MICRO_BATCH = 128, 8


class Block(nn.Module):
    """A residual block with dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.2),
            nn.Linear(2 * width, width), nn.Dropout(0.2),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x plus what the block adds."""
        return x + self.body(x)


class Net(nn.Module):
    """Four blocks, each of which keeps nothing but its input for backward."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(64, width), nn.Linear(width, 10)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one score per class."""
        x = self.stem(x.flatten(1))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def main() -> None:
    """Train for two epochs."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = digits()
    order = torch.Generator().manual_seed(0)
    samples = [(x.float() / 16, y) for x, y in data.train][:500]
    train = DataLoader(samples, batch_size=MICRO_BATCH, shuffle=True, generator=order)
    test = DataLoader([(x.float() / 16, y) for x, y in data.test][:100], batch_size=MICRO_BATCH)
    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = BATCH // MICRO_BATCH
    for _ in range(2):
        model.train()
        losses = []
        for number, (images, labels) in enumerate(train, start=1):
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            (loss / steps).backward()
            if number % steps == 0 or number == len(train):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        model.eval()
        right = []
        with torch.no_grad():
            for images, labels in test:
                right.append(model(images.to(device)).argmax(1) == labels.to(device))
    accuracy = torch.cat(right).float().mean().item()
    finish(sum(losses) / len(losses), model, accuracy=accuracy)


if __name__ == "__main__":
    main()
