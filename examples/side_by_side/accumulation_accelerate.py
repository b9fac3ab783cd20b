"""Gradient accumulation with activation checkpointing, with Accelerate.

A batch of 128 is 16 micro-batches of 8. A micro-batch is what fits on one device, so the number of
processes divides the number of accumulation steps, as Accelerate's guide to performance advises.

python examples/side_by_side/accumulation_accelerate.py
torchrun --nproc-per-node 2 examples/side_by_side/accumulation_accelerate.py
"""

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import set_seed
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
    on_cpu = not torch.cuda.is_available()
    steps = BATCH // MICRO_BATCH // PartialState(cpu=on_cpu).num_processes
    accelerator = Accelerator(cpu=on_cpu, gradient_accumulation_steps=steps)
    set_seed(0)
    data = digits()
    order = torch.Generator().manual_seed(0)
    samples = [(x.float() / 16, y) for x, y in data.train][:500]
    train = DataLoader(samples, batch_size=MICRO_BATCH, shuffle=True, generator=order)
    test = DataLoader([(x.float() / 16, y) for x, y in data.test][:100], batch_size=MICRO_BATCH)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for _ in range(2):
        model.train()
        losses = []
        for images, labels in train:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean().item())
        model.eval()
        right = []
        with torch.no_grad():
            for images, labels in test:
                right.append(accelerator.gather_for_metrics(model(images).argmax(1) == labels))
    accuracy = torch.cat(right).float().mean().item()
    finish(sum(losses) / len(losses), accelerator.unwrap_model(model), accuracy=accuracy)
    accelerator.end_training()


if __name__ == "__main__":
    main()
