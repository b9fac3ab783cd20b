"""A stream without a length, which shuffles itself, with work for each sample, on one GPU.

python examples/side_by_side/stream_one_gpu.py
"""

import random
from collections.abc import Iterator

import torch
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
    """Turn lines into a batch."""
    return default_collate([parse(line) for line in lines])


def main() -> None:
    """Train for two epochs."""
    random.seed(0)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = DataLoader(Readings(), batch_size=32, collate_fn=collate)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(2):
        losses = []
        for batch in loader:
            loss = F.mse_loss(model(batch["x"].to(device)), batch["y"].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    finish(sum(losses) / len(losses), model)


if __name__ == "__main__":
    main()
