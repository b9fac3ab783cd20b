"""Trains on a stream that has no length, in the way of logs or click data."""
import argparse
import itertools

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset


class ClickStream(IterableDataset):
    """Endless (features, clicked) pairs; the same ones whenever the stream is started anew."""

    def __init__(self, seed: int, width: int = 10) -> None:
        self.seed = seed
        self.width = width
        self.taste = torch.randn(width, generator=torch.Generator().manual_seed(5))

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        while True:
            x = torch.randn(self.width, generator=g)
            noise = 0.3 * torch.randn((), generator=g)
            yield x, (x @ self.taste + x[0] * x[1] + noise > 0).float()


class Limited(IterableDataset):
    """The first `count` samples of a stream."""

    def __init__(self, stream, count):
        self.stream, self.count = stream, count

    def __iter__(self):
        return itertools.islice(self.stream, self.count)


def main(max_steps=240, batch_size=32, eval_every=60):
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(ClickStream(seed=1), batch_size=batch_size)
    val_loader = DataLoader(Limited(ClickStream(seed=2), 512), batch_size=batch_size)

    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.BCEWithLogitsLoss()

    window = []
    for step, (x, y) in enumerate(train_loader, start=1):
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window.append(loss.item())

        if step % eval_every == 0:
            model.eval()
            correct = count = 0
            with torch.no_grad():
                for x, y in val_loader:
                    x, y = x.to(device), y.to(device)
                    correct += ((model(x).squeeze(1) > 0) == (y > 0)).sum().item()
                    count += y.numel()
            model.train()
            print(f"step {step:4d}: loss {sum(window) / len(window):.4f}, accuracy {correct / count:.4f}")
            window.clear()
            torch.save({"step": step, "model": model.state_dict()}, f"stream-{step:05d}.pt")

        if step >= max_steps:
            break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-steps", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--eval-every", type=int, default=60)
    main(**vars(parser.parse_args()))
