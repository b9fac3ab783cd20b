"""Multi-horizon load forecasting with a small temporal convolution + attention decoder."""
from __future__ import annotations

import csv
import logging
import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("forecast")


@dataclass(frozen=True)
class DataCfg:
    n_series: int = 8
    length: int = 700
    context: int = 48
    horizon: int = 12
    stride: int = 4
    noise: float = 0.15


@dataclass(frozen=True)
class TrainCfg:
    epochs: int = 8
    batch: int = 37
    lr: float = 4e-3
    step_size: int = 3
    gamma: float = 0.5
    clip: float = 1.0
    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Cfg:
    seed: int = 123
    out: Path = Path("forecast_out")
    data: DataCfg = field(default_factory=DataCfg)
    train: TrainCfg = field(default_factory=TrainCfg)


def make_series(c: DataCfg, rng: np.random.Generator) -> np.ndarray:
    t = np.arange(c.length)
    rows = []
    for _ in range(c.n_series):
        daily = rng.uniform(.5, 1.5) * np.sin(2 * np.pi * t / 24 + rng.uniform(0, 6))
        weekly = rng.uniform(.2, .8) * np.sin(2 * np.pi * t / 168 + rng.uniform(0, 6))
        ar = np.zeros(c.length)
        for k in range(1, c.length):
            ar[k] = 0.9 * ar[k - 1] + rng.normal(0, c.noise)
        rows.append(daily + weekly + ar + rng.normal(0, .05, c.length))
    return np.stack(rows).astype(np.float32)


class Windows(Dataset):
    def __init__(self, values: np.ndarray, c: DataCfg, lo: int, hi: int):
        self.values, self.c = values, c
        span = c.context + c.horizon
        self.index = [(s, t) for s in range(len(values)) for t in range(lo, hi - span + 1, c.stride)]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        s, t = self.index[i]
        w = torch.from_numpy(self.values[s, t:t + self.c.context + self.c.horizon])
        past, future = w[:self.c.context], w[self.c.context:]
        loc, scale = past.mean(), past.std() + 1e-3
        hours = torch.arange(t, t + len(w)) % 24
        clock = torch.stack([torch.sin(hours * 2 * math.pi / 24), torch.cos(hours * 2 * math.pi / 24)], 1)
        return {"past": (past - loc) / scale, "future": (future - loc) / scale, "clock": clock, "scale": scale, "sid": torch.tensor(s)}


class Forecaster(nn.Module):
    def __init__(self, n_series: int, horizon: int, n_q: int, d: int = 32):
        super().__init__()
        self.static = nn.Embedding(n_series, d)
        self.inp = nn.Linear(3, d)
        self.convs = nn.ModuleList([nn.Conv1d(d, d, 3, dilation=2 ** k) for k in range(4)])
        self.query = nn.Linear(2 + 2 * d, d)
        self.step_emb = nn.Embedding(horizon, d)
        self.pos = nn.Parameter(torch.randn(1, 512, d) * 0.02)
        self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, n_q))
        self.horizon = horizon

    def forward(self, past: Tensor, clock: Tensor, sid: Tensor) -> Tensor:
        L = past.size(1)
        h = self.inp(torch.cat([past.unsqueeze(-1), clock[:, :L]], -1)).transpose(1, 2)
        for k, conv in enumerate(self.convs):
            h = h + torch.relu(conv(nn.functional.pad(h, (2 * 2 ** k, 0))))
        mem = h.transpose(1, 2) + self.pos[:, :L]
        st = self.static(sid).unsqueeze(1).expand(-1, self.horizon, -1)
        st = st + mem[:, -1:]
        steps = self.step_emb.weight.expand(len(past), -1, -1)
        q = self.query(torch.cat([clock[:, L:], st, steps], -1))
        ctx, _ = self.attn(q, mem, mem, need_weights=False)
        return self.head(ctx + q)


def pinball(pred: Tensor, target: Tensor, qs: Tensor) -> Tensor:
    err = target.unsqueeze(-1) - pred
    return torch.maximum(qs * err, (qs - 1) * err).mean()


def to_device(it: DataLoader, device: torch.device) -> Iterator[dict[str, Tensor]]:
    for b in it:
        yield {k: v.to(device, non_blocking=True) for k, v in b.items()}


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, qs: Tensor, device: torch.device) -> dict[str, float]:
    model.eval()
    n = mae = pin = inside = 0.0
    for b in to_device(loader, device):
        out = model(b["past"], b["clock"], b["sid"])
        k = b["past"].size(0)
        mae += ((out[..., 1] - b["future"]).abs().mean(1) * b["scale"]).sum().item()
        pin += pinball(out, b["future"], qs).item() * k
        inside += ((b["future"] >= out[..., 0]) & (b["future"] <= out[..., 2])).float().mean().item() * k
        n += k
    return {"mae": mae / n, "pinball": pin / n, "coverage80": inside / n}


def main(cfg: Cfg = Cfg()) -> None:
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cfg.out.mkdir(parents=True, exist_ok=True)
    values = make_series(cfg.data, rng)
    cut = int(cfg.data.length * 0.8)
    make_loader = partial(DataLoader, batch_size=cfg.train.batch, num_workers=0)
    train_dl = make_loader(Windows(values, cfg.data, 0, cut), shuffle=True)
    valid_dl = make_loader(Windows(values, cfg.data, cut - cfg.data.context, cfg.data.length))
    log.info("windows: %d train, %d valid", len(train_dl.dataset), len(valid_dl.dataset))

    qs = torch.tensor(cfg.train.quantiles, device=device)
    model = Forecaster(cfg.data.n_series, cfg.data.horizon, len(qs)).to(device)
    opt = torch.optim.RAdam(model.parameters(), lr=cfg.train.lr)
    sched = torch.optim.lr_scheduler.StepLR(opt, cfg.train.step_size, cfg.train.gamma)
    best = math.inf
    with (cfg.out / "metrics.csv").open("w", newline="") as fh:
        w = csv.DictWriter(fh, ["epoch", "train", "mae", "pinball", "coverage80"])
        w.writeheader()
        for epoch in range(cfg.train.epochs):
            model.train()
            run = torch.zeros((), device=device)
            for b in to_device(train_dl, device):
                loss = pinball(model(b["past"], b["clock"], b["sid"]), b["future"], qs)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), cfg.train.clip)
                opt.step()
                run += loss.detach()
            sched.step()
            m = evaluate(model, valid_dl, qs, device)
            train_loss = (run / len(train_dl)).item()
            log.info("epoch %d train %.4f valid %s", epoch, train_loss, {k: round(v, 4) for k, v in m.items()})
            w.writerow({"epoch": epoch, "train": train_loss, **m})
            if m["pinball"] < best:
                best = m["pinball"]
                torch.save({"model": model.state_dict(), "epoch": epoch}, cfg.out / "best.pt")
    log.info("best pinball %.4f", best)


if __name__ == "__main__":
    main()
