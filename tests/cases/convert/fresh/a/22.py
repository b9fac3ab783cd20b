"""Multi-task network on gait-like signals: person's activity (class), speed (regression), turning (binary).

A third of the recordings have no speed label; the "turn" head is only trained every other step, and the
trunk's second half is frozen during the first epoch.
"""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Params:
    n_train, n_test = 1600, 400
    channels, length = 3, 64
    classes = 4
    batch_size = 32
    epochs = 5
    lr = 2e-3
    freeze_epochs = 1
    seed = 77
    path = "mtl"


def generate(n, rng, P):
    t = np.arange(P.length) / P.length
    cls = rng.integers(P.classes, size=n)
    speed = rng.uniform(0.5, 2.0, n)
    turn = rng.integers(2, size=n)
    x = np.zeros((n, P.channels, P.length))
    for i in range(n):
        f = 4 * speed[i] + cls[i]
        ph = rng.uniform(0, 6)
        x[i, 0] = np.sin(2 * np.pi * f * t + ph)
        x[i, 1] = np.sign(np.sin(2 * np.pi * f * t + ph)) if cls[i] % 2 else np.cos(4 * np.pi * f * t + ph)
        x[i, 2] = (cls[i] // 2) * 0.5 + turn[i] * t * rng.choice([-1, 1]) + 0.3 * speed[i]
    x += rng.normal(0, 0.3, x.shape)
    known = rng.random(n) < 0.66
    return [torch.as_tensor(v) for v in (x.astype(np.float32), cls, speed.astype(np.float32), turn.astype(np.float32), known.astype(np.float32))]


class MTLNet(nn.Module):
    def __init__(self, P, width=32):
        super().__init__()
        self.low = nn.Sequential(nn.Conv1d(P.channels, width, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2))
        self.high = nn.Sequential(nn.Conv1d(width, width, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten())
        self.heads = nn.ModuleDict({
            "cls": nn.Linear(4 * width, P.classes),
            "speed": nn.Sequential(nn.Linear(4 * width, 32), nn.ReLU(), nn.Linear(32, 1)),
            "turn": nn.Linear(4 * width, 1),
        })

    def forward(self, x, tasks=("cls", "speed", "turn")):
        h = self.high(self.low(x))
        return {k: self.heads[k](h) for k in tasks}


class UncertaintyWeights(nn.Module):
    """Kendall & Gal: sum exp(-s) L + s"""

    def __init__(self, names):
        super().__init__()
        self.s = nn.ParameterDict({k: nn.Parameter(torch.zeros(())) for k in names})

    def forward(self, losses):
        return sum(torch.exp(-self.s[k]) * v + self.s[k] for k, v in losses.items())


def auc(score, label):
    """Area under the ROC curve by ranks."""
    order = score.argsort()
    ranks = torch.empty_like(score)
    ranks[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    pos = label.sum()
    neg = len(label) - pos
    return ((ranks[label == 1].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


def compute_losses(out, batch):
    _, cls, speed, turn, known = batch
    losses = {}
    if "cls" in out:
        losses["cls"] = nn.functional.cross_entropy(out["cls"], cls)
    if "speed" in out:
        err = (out["speed"].squeeze(1) - speed) ** 2
        losses["speed"] = (err * known).mean()
    if "turn" in out:
        losses["turn"] = nn.functional.binary_cross_entropy_with_logits(out["turn"].squeeze(1), turn)
    return losses


@torch.no_grad()
def test(net, loader, device):
    net.eval()
    outs, labels = {"cls": [], "speed": [], "turn": []}, [[], [], []]
    for batch in loader:
        o = net(batch[0].to(device))
        for k in outs:
            outs[k].append(o[k].cpu())
        for l, b in zip(labels, batch[1:4]):
            l.append(b)
    cls, speed, turn = (torch.cat(l) for l in labels)
    pc, ps, pt = torch.cat(outs["cls"]), torch.cat(outs["speed"]).squeeze(1), torch.cat(outs["turn"]).squeeze(1)
    return {"acc": (pc.argmax(1) == cls).float().mean().item(),
            "r2": (1 - ((ps - speed) ** 2).sum() / ((speed - speed.mean()) ** 2).sum()).item(),
            "auc": auc(pt, turn)}


def main():
    P = Params
    torch.manual_seed(P.seed)
    rng = np.random.default_rng(P.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    os.makedirs(P.path, exist_ok=True)
    train = DataLoader(TensorDataset(*generate(P.n_train, rng, P)), batch_size=P.batch_size, shuffle=True)
    held = DataLoader(TensorDataset(*generate(P.n_test, rng, P)), batch_size=128)
    net, weights = MTLNet(P).to(device), UncertaintyWeights(("cls", "speed", "turn")).to(device)
    opt = torch.optim.Adam([{"params": net.parameters()}, {"params": weights.parameters(), "lr": 5 * P.lr}], lr=P.lr)
    hist, it, best = [], 0, -math.inf
    for epoch in range(P.epochs):
        for p in net.high.parameters():
            p.requires_grad_(epoch >= P.freeze_epochs)
        net.train()
        sums, counts = {}, {}
        for batch in train:
            batch = [b.to(device) for b in batch]
            tasks = ("cls", "speed", "turn") if it % 2 == 0 else ("cls", "speed")
            losses = compute_losses(net(batch[0], tasks), batch)
            total = weights(losses)
            opt.zero_grad()
            total.backward()
            opt.step()
            it += 1
            for k, v in losses.items():
                sums[k] = sums.get(k, 0.0) + v.item()
                counts[k] = counts.get(k, 0) + 1
        m = test(net, held, device)
        s = {k: round(math.exp(-v.item()), 3) for k, v in weights.s.items()}
        print(f"[{epoch + 1}/{P.epochs}] " + " ".join(f"{k} {sums[k] / counts[k]:.4f}" for k in sums)
              + f" | acc {m['acc']:.4f} R2 {m['r2']:.4f} AUC {m['auc']:.4f} | weights {s}")
        hist.append({"epoch": epoch + 1, **m})
        if sum(m.values()) > best:
            best = sum(m.values())
            torch.save({"net": net.state_dict(), "weights": weights.state_dict()}, os.path.join(P.path, "best.pt"))
    json.dump(hist, open(os.path.join(P.path, "hist.json"), "w"))
    ck = torch.load(os.path.join(P.path, "best.pt"), map_location=device)
    net.load_state_dict(ck["net"])
    print("best:", {k: round(v, 4) for k, v in test(net, held, device).items()})


if __name__ == "__main__":
    main()
