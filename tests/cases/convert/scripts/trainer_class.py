"""A trainer with early stopping.

    python trainer_class.py --epochs 20 --patience 3
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    epochs: int = 20
    batch_size: int = 32
    lr: float = 0.02
    patience: int = 3
    min_delta: float = 1e-3
    seed: int = 7
    out: Path = field(default_factory=lambda: Path("best.pt"))


class Rings(Dataset[tuple[Tensor, Tensor]]):
    """Points in the plane; the label says on which of three rings a point lies."""

    def __init__(self, count: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(3, (count,), generator=g)
        radius = self.labels + 1 + 0.25 * torch.randn(count, generator=g)
        angle = 6.2832 * torch.rand(count, generator=g)
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.points[i], self.labels[i]


class EarlyStopping:
    def __init__(self, patience: int, min_delta: float) -> None:
        self.patience, self.min_delta = patience, min_delta
        self.best = float("inf")
        self.bad_epochs = 0

    def __call__(self, loss: float) -> bool:
        if loss < self.best - self.min_delta:
            self.best, self.bad_epochs = loss, 0
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


class Trainer:
    def __init__(self, model: nn.Module, config: Config) -> None:
        self.config = config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.train_loader = DataLoader(Rings(640, 1), batch_size=config.batch_size, shuffle=True)
        self.val_loader = DataLoader(Rings(320, 2), batch_size=config.batch_size)
        self.stopper = EarlyStopping(config.patience, config.min_delta)
        self.history: list[dict[str, float]] = []

    def train_epoch(self) -> float:
        self.model.train()
        total = 0.0
        for points, labels in self.train_loader:
            points, labels = points.to(self.device), labels.to(self.device)
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(points), labels)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        self.model.eval()
        loss_sum, correct, seen = 0.0, 0, 0
        for points, labels in self.val_loader:
            points, labels = points.to(self.device), labels.to(self.device)
            logits = self.model(points)
            loss_sum += self.criterion(logits, labels).item() * len(labels)
            correct += (logits.argmax(1) == labels).sum().item()
            seen += len(labels)
        return loss_sum / seen, correct / seen

    def save(self) -> None:
        torch.save({"model": self.model.state_dict(), "history": self.history}, self.config.out)

    def load(self) -> None:
        self.model.load_state_dict(torch.load(self.config.out)["model"])

    def fit(self) -> None:
        for epoch in range(self.config.epochs):
            train_loss = self.train_epoch()
            val_loss, accuracy = self.validate()
            self.history.append({"train": train_loss, "val": val_loss, "accuracy": accuracy})
            print(f"{epoch:>3} train {train_loss:.4f} | val {val_loss:.4f} | accuracy {accuracy:.2%}")
            if val_loss < min([h["val"] for h in self.history[:-1]], default=float("inf")):
                self.save()
            if self.stopper(val_loss):
                print(f"no progress in {self.config.patience} epochs: stopped after {epoch + 1}")
                break
        self.load()
        print("best: val {:.4f}, accuracy {:.2%}".format(*self.validate()))


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--patience", type=int, default=3)
    options = parser.parse_args()
    config = Config(epochs=options.epochs, patience=options.patience)
    torch.manual_seed(config.seed)
    Trainer(build(), config).fit()
