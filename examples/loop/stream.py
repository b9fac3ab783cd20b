"""A stream without a length, which shuffles itself, with work for each sample.

python examples/loop/stream.py
lockstep train examples/loop/stream.py --replicas 2 --out runs/stream
"""

import random
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F

import lockstep


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
    """Turn a line into a sample, with noise: called only for the samples of this replica."""
    _, a, b = line.split(";")
    x = torch.tensor([float(a), float(b)]) + 0.01 * torch.randn(2)
    return {"x": x, "y": (x[:1] - x[1:]).sin()}


def main() -> None:
    """Train for two epochs."""
    with lockstep.Loop(global_batch=32, exact=True) as loop:
        model = loop.model(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)))
        optimizer = loop.optimizer(torch.optim.Adam(model.parameters(), lr=1e-2))
        batches = loop.batches(Readings(), transform=parse)

        def loss(batch):
            return F.mse_loss(model(batch["x"]), batch["y"], reduction="sum"), len(batch["y"])

        for epoch in loop.epochs(2):
            for batch in batches:
                loop.step(batch, loss, optimizer)
            loop.say(f"epoch {epoch}: loss {loop.logged['loss']:.5f}")


if __name__ == "__main__":
    main()
