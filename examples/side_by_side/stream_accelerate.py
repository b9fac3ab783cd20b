"""A stream without a length, which shuffles itself, with work for each sample, with Accelerate.

`split_batches=True` keeps the global batch on any number of processes.

python examples/side_by_side/stream_accelerate.py
torchrun --nproc-per-node 2 examples/side_by_side/stream_accelerate.py
"""

import random
from collections.abc import Iterator

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from ending import finish
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, default_collate


class Readings(torch.utils.data.IterableDataset):
    """Readings of a sensor, as they would come from files, through a shuffle buffer."""

    def __iter__(self) -> Iterator[str]:
        """Yield one line of text after the other, in a new order in every epoch."""
        buffer: list[str] = []
        for number in range(410):
            buffer.append(f"{number};{number * 37 % 101 / 101};{number * 53 % 97 / 97}")
            if len(buffer) == 64:
                yield buffer.pop(random.randrange(len(buffer)))
        random.shuffle(buffer)
        yield from buffer


def parse(line: str) -> dict[str, torch.Tensor]:
    """Turn a line into a sample, with noise."""
    _, a, b = line.split(";")
    x = torch.tensor([float(a), float(b)]) + 0.01 * torch.randn(2)
    return {"x": x, "y": (x[:1] - x[1:]).sin()}


def collate(lines: list[str]) -> dict[str, torch.Tensor]:
    """Turn lines into a batch: Accelerate calls it on the first process alone."""
    return default_collate([parse(line) for line in lines])


def main() -> None:
    """Train for two epochs."""
    loading = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=loading)
    set_seed(0)
    loader = DataLoader(Readings(), batch_size=32, collate_fn=collate)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(2):
        losses = []
        for batch in loader:
            loss = F.mse_loss(model(batch["x"]), batch["y"])
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach()).mean().item())
    finish(sum(losses) / len(losses), accelerator.unwrap_model(model))
    accelerator.end_training()


if __name__ == "__main__":
    main()
