# RealNVP on the checkerboard / two moons toys. Data are drawn afresh at every step, there is no dataset.
import copy
import math
import sys
import time

import numpy as np
import torch
import torch.nn as nn

TOY = sys.argv[1] if len(sys.argv) > 1 else "moons"
STEPS = 600
LOG_EVERY = 100
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def sample_toy(name, n):
    if name == "moons":
        th = np.random.rand(n) * np.pi
        up = np.random.rand(n) < 0.5
        x = np.stack([np.where(up, np.cos(th), 1 - np.cos(th)), np.where(up, np.sin(th), 0.5 - np.sin(th))], 1)
        x = (x - [0.5, 0.25]) * 1.5 + np.random.randn(n, 2) * 0.1
    elif name == "checker":
        x1 = np.random.rand(n) * 4 - 2
        x2 = np.random.rand(n) - np.random.randint(0, 2, n) * 2 + np.floor(x1) % 2
        x = np.stack([x1, x2], 1)
    else:
        raise ValueError(name)
    return torch.from_numpy(x.astype(np.float32))


class Coupling(nn.Module):
    def __init__(self, mask, hidden=48):
        super().__init__()
        self.register_buffer("mask", mask)
        mk = lambda: nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU(), nn.Linear(hidden, 2))
        self.s, self.t = mk(), mk()
        self.scale = nn.Parameter(torch.ones(2) * 0.5)

    def forward(self, x):
        xm = x * self.mask
        s = torch.tanh(self.s(xm)) * self.scale * (1 - self.mask)
        t = self.t(xm) * (1 - self.mask)
        return xm + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(1)

    def inverse(self, y):
        ym = y * self.mask
        s = torch.tanh(self.s(ym)) * self.scale * (1 - self.mask)
        t = self.t(ym) * (1 - self.mask)
        return ym + (1 - self.mask) * (y - t) * torch.exp(-s)


class RealNVP(nn.Module):
    def __init__(self, n=6):
        super().__init__()
        m = torch.tensor([1.0, 0.0])
        self.layers = nn.ModuleList([Coupling(m if i % 2 == 0 else 1 - m) for i in range(n)])

    def forward(self, x):
        logdet = x.new_zeros(len(x))
        for l in self.layers:
            x, ld = l(x)
            logdet = logdet + ld
        return x, logdet

    def log_prob(self, x):
        z, logdet = self(x)
        return -0.5 * (z ** 2).sum(1) - math.log(2 * math.pi) + logdet

    @torch.no_grad()
    def sample(self, n):
        z = torch.randn(n, 2, device=self.layers[0].mask.device)
        for l in reversed(self.layers):
            z = l.inverse(z)
        return z


flow = RealNVP().to(device)
ema = copy.deepcopy(flow)
optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3, weight_decay=1e-5)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
x_test = sample_toy(TOY, 2000).to(device)

running, t0 = [], time.time()
for step in range(1, STEPS + 1):
    x = sample_toy(TOY, 256).to(device)
    loss = -flow.log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    with torch.no_grad():
        for pe, p in zip(ema.parameters(), flow.parameters()):
            pe.mul_(0.99).add_(p, alpha=0.01)
    running.append(loss.item())
    if step % LOG_EVERY == 0:
        with torch.no_grad():
            nll, nll_ema = -flow.log_prob(x_test).mean().item(), -ema.log_prob(x_test).mean().item()
        print(f"{step:5d} train nll {np.mean(running[-LOG_EVERY:]):.4f} test nll {nll:.4f} ema {nll_ema:.4f}  {time.time() - t0:.1f}s")

# crude picture of the density in the terminal
g = torch.linspace(-2.5, 2.5, 40)
yy, xx = torch.meshgrid(g.flip(0)[::2], g, indexing="ij")
with torch.no_grad():
    p = ema.log_prob(torch.stack([xx.flatten(), yy.flatten()], 1).to(device)).exp().view(20, 40).cpu()
for row in p:
    print("".join(" .:-=+*#"[min(7, int(v * 20))] for v in row.tolist()))
torch.save(ema.state_dict(), f"realnvp_{TOY}.pt")
np.save(f"samples_{TOY}.npy", ema.sample(1000).cpu().numpy())
