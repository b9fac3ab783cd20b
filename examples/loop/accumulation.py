"""Gradient accumulation with activation checkpointing: a batch that does not fit at once.

The global batch is cut into 16 shards. One replica computes them one after the other, two replicas
eight each: accumulation needs no code. Activation checkpointing saves memory within a shard; the
second forward pass draws the same dropout masks.

python examples/loop/accumulation.py
lockstep train examples/loop/accumulation.py --replicas 4 --out runs/accumulation
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import lockstep


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
    digits = lockstep.data.digits()
    train = [(x.float() / 16, y) for x, y in digits.train][:500]
    test = [(x.float() / 16, y) for x, y in digits.test][:100]
    with lockstep.Loop(global_batch=128, shards=16, exact=True) as loop:
        model = loop.model(Net())
        optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=3e-3), clip=1.0)
        batches = loop.batches(train)

        def loss(batch):
            images, labels = batch
            return F.cross_entropy(model(images), labels, reduction="sum"), len(labels)

        def measure(batch):
            images, labels = batch
            return {"accuracy": (model(images).argmax(1) == labels).float()}

        for _ in loop.epochs(2):
            for batch in batches:
                loop.step(batch, loss, optimizer)
            loop.evaluate(test, measure)


if __name__ == "__main__":
    main()
