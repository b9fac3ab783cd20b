"""A trainer with early stopping.

    python trainer_class.py --epochs 20 --patience 3
"""

from __future__ import annotations

import argparse
import gc
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# torchrun starts one process per GPU; without it this is the only one.
DISTRIBUTED = "RANK" in os.environ
RANK, WORLD_SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


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


def report(line: str) -> None:
    if RANK == 0:
        print(line)


class Trainer:
    def __init__(self, model: nn.Module, config: Config) -> None:
        self.config = config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.ddp = DistributedDataParallel(self.model) if DISTRIBUTED else self.model
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        if config.batch_size % WORLD_SIZE:
            raise SystemExit(f"a batch of {config.batch_size} has no {WORLD_SIZE} equal parts")
        train_set, val_set = Rings(640, 1), Rings(320, 2)
        self.sampler = DistributedSampler(train_set, seed=config.seed) if DISTRIBUTED else None
        self.train_loader = DataLoader(train_set, batch_size=config.batch_size // WORLD_SIZE,
                                       shuffle=not DISTRIBUTED, sampler=self.sampler)
        self.val_loader = DataLoader(val_set, batch_size=config.batch_size,
                                     sampler=range(RANK, len(val_set), WORLD_SIZE))
        self.stopper = EarlyStopping(config.patience, config.min_delta)
        self.history: list[dict[str, float]] = []

    def over_ranks(self, *values: float) -> list[float]:
        """The sum of each value over all ranks; all of them must call this."""
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        if DISTRIBUTED:
            dist.all_reduce(sums)
        return sums.tolist()

    def train_epoch(self) -> float:
        self.model.train()
        total = 0.0
        for points, labels in self.train_loader:
            points, labels = points.to(self.device), labels.to(self.device)
            self.optimizer.zero_grad()
            loss = self.criterion(self.ddp(points), labels)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        total, = self.over_ranks(total)
        return total / WORLD_SIZE / len(self.train_loader)

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
        loss_sum, correct, seen = self.over_ranks(loss_sum, correct, seen)
        return loss_sum / seen, correct / seen

    def save(self) -> None:
        if RANK == 0:
            torch.save({"model": self.model.state_dict(), "history": self.history}, self.config.out)

    def load(self) -> None:
        if DISTRIBUTED:
            dist.barrier()  # until rank 0 has written
        best = torch.load(self.config.out, map_location=self.device)
        self.model.load_state_dict(best["model"])

    def fit(self) -> None:
        for epoch in range(self.config.epochs):
            if self.sampler is not None:
                self.sampler.set_epoch(epoch)
            train_loss = self.train_epoch()
            val_loss, accuracy = self.validate()
            self.history.append({"train": train_loss, "val": val_loss, "accuracy": accuracy})
            report(f"{epoch:>3} train {train_loss:.4f} | val {val_loss:.4f} | accuracy {accuracy:.2%}")
            if val_loss < min([h["val"] for h in self.history[:-1]], default=float("inf")):
                self.save()
            if self.stopper(val_loss):
                report(f"no progress in {self.config.patience} epochs: stopped after {epoch + 1}")
                break
        self.load()
        report("best: val {:.4f}, accuracy {:.2%}".format(*self.validate()))


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--patience", type=int, default=3)
    options = parser.parse_args()
    config = Config(epochs=options.epochs, patience=options.patience)
    torch.manual_seed(config.seed)
    if DISTRIBUTED:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    Trainer(build(), config).fit()
    if DISTRIBUTED:
        gc.collect()  # a wrapper that is still alive may abort the process when the group ends
        dist.destroy_process_group()
