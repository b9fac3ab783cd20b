from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class EMA:
    """A copy of a model whose weights follow it slowly."""

    def __init__(self, model: nn.Module, decay: float = 0.99) -> None:
        self.module = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for slow, fast in zip(self.module.state_dict().values(), model.state_dict().values()):
            if slow.dtype.is_floating_point:
                slow.mul_(self.decay).add_(fast.detach(), alpha=1 - self.decay)
            else:
                slow.copy_(fast)


def spiral(count: int, seed: int) -> TensorDataset:
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (count,), generator=g)
    along = torch.rand(count, generator=g)
    angle = 5 * along + 3.1416 * label + 0.25 * torch.randn(count, generator=g)
    return TensorDataset(torch.stack([along * angle.cos(), along * angle.sin()], 1), label)


def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    model.eval()
    loss, right = torch.zeros((), device=device), torch.zeros((), device=device)
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss += F.cross_entropy(out, y, reduction="sum")
            right += (out.argmax(-1) == y).sum()
    n = len(loader.dataset)
    return loss.item() / n, right.item() / n


def main() -> None:
    torch.manual_seed(3)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(spiral(512, 0), batch_size=32, shuffle=True)
    test_loader = DataLoader(spiral(256, 1), batch_size=64)

    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    model = model.to(device)
    ema = EMA(model, decay=0.95)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

    for epoch in range(12):
        model.train()
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            ema.update(model)
        test_loss, test_acc = evaluate(ema.module, test_loader, device)
        print(f"{epoch=} loss={loss.item():.4f} {test_loss=:.4f} {test_acc=:.4f}")

    torch.save({"model": model.state_dict(), "ema": ema.module.state_dict()}, "ema.pt")


if __name__ == "__main__":
    main()
