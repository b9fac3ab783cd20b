"""BYOL-style self-supervision on accelerometer-like windows (no negatives)."""
import copy
import functools
import math
import time
from typing import Callable, Tuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

LENGTH, CHANNELS, N_CLASSES = 80, 2, 6


def window(c: int, g: torch.Generator) -> torch.Tensor:
    u = lambda a, b: a + (b - a) * torch.rand((), generator=g).item()
    t = torch.linspace(0, 1, LENGTH)
    f = 2.0 + 1.5 * c
    sig = torch.sin(2 * math.pi * (f * t + u(0, 1)))
    if c % 3 == 0:
        sig = sig.sign() * 0.8
    elif c % 3 == 1:
        sig = sig * torch.exp(-2 * t) * 1.6
    other = torch.cos(2 * math.pi * (0.5 * f * t + u(0, 1)))
    return torch.stack([sig, other]) * u(0.7, 1.4) + 0.5 * torch.randn(2, LENGTH, generator=g)


class Windows(Dataset):
    def __init__(self, n: int, seed: int, transform: Callable = None):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(N_CLASSES, (n,), generator=g)
        self.data = torch.stack([window(int(c), g) for c in self.labels])
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i):
        x = self.data[i]
        if self.transform is not None:
            return self.transform(x), self.transform(x)
        return x, self.labels[i]


def jitter(x: torch.Tensor, scale: float = 0.3, noise: float = 0.2) -> torch.Tensor:
    x = torch.roll(x, int(torch.randint(LENGTH, ())), 1)
    x = x * (1 + scale * (2 * torch.rand(CHANNELS, 1) - 1)) + noise * torch.randn_like(x)
    s = int(torch.randint(LENGTH - 12, ()))
    x[:, s:s + 12] = 0
    return x


def mlp(i: int, h: int, o: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Encoder(nn.Sequential):
    def __init__(self, d: int = 64):
        super().__init__(nn.Conv1d(CHANNELS, 24, 7, 2, 3), nn.GroupNorm(4, 24), nn.ReLU(),
                         nn.Conv1d(24, d, 5, 2, 2), nn.GroupNorm(8, d), nn.ReLU(),
                         nn.Conv1d(d, d, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())


class BYOL(nn.Module):
    def __init__(self, d: int = 64, proj: int = 32, tau: float = 0.97):
        super().__init__()
        self.online = nn.Sequential(Encoder(d), mlp(d, 96, proj))
        self.predictor = mlp(proj, 96, proj)
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)
        self.base_tau = tau

    @torch.no_grad()
    def momentum_update(self, progress: float) -> float:
        tau = 1 - (1 - self.base_tau) * (math.cos(math.pi * progress) + 1) / 2
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.mul_(tau).add_(o.detach(), alpha=1 - tau)
        return tau

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        loss = 2 - F.cosine_similarity(pa, tb, dim=1) - F.cosine_similarity(pb, ta, dim=1)
        return loss.mean(), pa.detach()


def linear_probe(encoder: nn.Module, device: torch.device) -> float:
    """Ridge regression on frozen features."""
    encoder.eval()

    @torch.no_grad()
    def feats(ds):
        out = [(encoder(x.to(device)).cpu(), y) for x, y in DataLoader(ds, batch_size=200)]
        return torch.cat([o[0] for o in out]), torch.cat([o[1] for o in out])

    fx, fy = feats(Windows(400, 50))
    qx, qy = feats(Windows(400, 51))
    m, s = fx.mean(0), fx.std(0) + 1e-6
    fx, qx = (fx - m) / s, (qx - m) / s
    A = torch.cat([fx, torch.ones(len(fx), 1)], 1).double()
    W = torch.linalg.solve(A.t() @ A + 1.0 * torch.eye(A.size(1), dtype=torch.double), A.t() @ F.one_hot(fy, N_CLASSES).double())
    pred = (torch.cat([qx, torch.ones(len(qx), 1)], 1).double() @ W).argmax(1)
    encoder.train()
    return (pred == qy).float().mean().item()


def main(epochs: int = 8, batch_size: int = 80, lr: float = 1e-3, seed: int = 2) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Windows(1200, 1, transform=functools.partial(jitter, noise=0.25)), batch_size=batch_size,
                        shuffle=True, drop_last=True)
    model = BYOL().to(device)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * len(loader))
    print(f"linear probe before training: {linear_probe(model.online[0], device):.4f}")
    step, total = 0, epochs * len(loader)
    for epoch in range(epochs):
        t0, losses, spread = time.time(), [], []
        for a, b in loader:
            a, b = a.to(device), b.to(device)
            loss, p = model(a, b)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            tau = model.momentum_update(step / total)
            step += 1
            losses.append(loss.item())
            spread.append(F.normalize(p, dim=1).std(0).mean().item())      # collapse watch
        probe = linear_probe(model.online[0], device)
        print(f"epoch {epoch} loss {np.mean(losses):.4f} spread {np.mean(spread):.4f} tau {tau:.4f} probe {probe:.4f} ({time.time() - t0:.1f}s)")
    torch.save(model.online[0].state_dict(), "byol_encoder.pt")


if __name__ == "__main__":
    main()
