#!/usr/bin/env python3
# Mutual information neural estimation (Belghazi et al. 2018), correlated gaussians.
# The true value is known, so we can see how tight the bound gets.
import argparse
import json

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class Statistics(nn.Module):
    def __init__(self, dx, dy, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dx + dy, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU(), nn.Linear(hidden, 1))

    def forward(self, x, y):
        return self.net(torch.cat([x, y], dim=1)).squeeze(1)


def correlated(n, dim, rho, rng):
    x = rng.standard_normal((n, dim))
    y = rho * x + np.sqrt(1 - rho ** 2) * rng.standard_normal((n, dim))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def donsker_varadhan(t_joint, t_marginal):
    """E_joint[T] - log E_marginal[exp T]"""
    n = t_marginal.numel()
    log_mean_exp = torch.logsumexp(t_marginal, dim=0) - np.log(n)
    return t_joint.mean() - log_mean_exp


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--dim", type=int, default=4)
    ap.add_argument("--rho", type=float, default=0.7)
    ap.add_argument("--samples", type=int, default=2000)
    ap.add_argument("--batch-size", type=int, default=200)
    ap.add_argument("--epochs", type=int, default=60)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    truth = -0.5 * args.dim * np.log(1 - args.rho ** 2)
    loader = DataLoader(TensorDataset(*correlated(args.samples, args.dim, args.rho, rng)), batch_size=args.batch_size, shuffle=True)
    xt, yt = (v.to(device) for v in correlated(2000, args.dim, args.rho, rng))

    net = Statistics(args.dim, args.dim).to(device)
    opt = optim.Adam(net.parameters(), lr=args.lr)
    curve = []
    for epoch in range(1, args.epochs + 1):
        net.train()
        total = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            shuffled = y[torch.randperm(len(y), device=y.device)]
            mi = donsker_varadhan(net(x, y), net(x, shuffled))
            loss = -mi
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            opt.step()
            total += mi.item()
        net.eval()
        with torch.no_grad():
            held = donsker_varadhan(net(xt, yt), net(xt, yt.roll(1, 0))).item()
        curve.append([epoch, total / len(loader), held])
        if epoch % 10 == 0:
            print(f"epoch {epoch:3d}: bound {total / len(loader):.4f} held-out {held:.4f} (true {truth:.4f} nats)")
    with open("mine.json", "w") as fh:
        json.dump({"truth": truth, "curve": curve}, fh)
    torch.save(net.state_dict(), "mine.pt")


if __name__ == "__main__":
    main()
