import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half, device=t.device) * -(math.log(10000) / (half - 1)))
        ang = t[:, None].float() * freqs[None]
        return torch.cat([ang.sin(), ang.cos()], -1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.mlp = nn.Linear(tdim, cout * 2)
        self.c1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.c2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.n1, self.n2 = nn.GroupNorm(4, cout), nn.GroupNorm(4, cout)
        self.res = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.mlp(F.silu(t))[:, :, None, None].chunk(2, 1)
        h = self.n1(self.c1(x)) * (1 + scale) + shift
        h = self.n2(self.c2(F.silu(h)))
        return F.silu(h) + self.res(x)


class UNet(nn.Module):
    def __init__(self, ch=16, tdim=64):
        super().__init__()
        self.time = nn.Sequential(SinusoidalPosEmb(tdim), nn.Linear(tdim, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.d1 = ResBlock(ch, ch, tdim)
        self.down1 = nn.Conv2d(ch, 2 * ch, 4, 2, 1)
        self.d2 = ResBlock(2 * ch, 2 * ch, tdim)
        self.down2 = nn.Conv2d(2 * ch, 2 * ch, 4, 2, 1)
        self.mid = ResBlock(2 * ch, 2 * ch, tdim)
        self.u2 = ResBlock(4 * ch, 2 * ch, tdim)
        self.u1 = ResBlock(3 * ch, ch, tdim)
        self.out = nn.Conv2d(ch, 1, 1)

    def forward(self, x, t):
        t = self.time(t)
        h1 = self.d1(self.inp(x), t)
        h2 = self.d2(self.down1(h1), t)
        h = self.mid(self.down2(h2), t)
        h = self.u2(torch.cat([F.interpolate(h, scale_factor=2), h2], 1), t)
        h = self.u1(torch.cat([F.interpolate(h, scale_factor=2), h1], 1), t)
        return self.out(h)


def cosine_betas(T, s=0.008):
    x = torch.linspace(0, T, T + 1, dtype=torch.float64)
    a = torch.cos(((x / T) + s) / (1 + s) * math.pi * 0.5) ** 2
    a = a / a[0]
    return (1 - a[1:] / a[:-1]).clamp(0, 0.999).float()


class GaussianDiffusion(nn.Module):
    def __init__(self, net, image_size, timesteps, schedule="cosine"):
        super().__init__()
        self.net, self.image_size, self.T = net, image_size, timesteps
        betas = cosine_betas(timesteps) if schedule == "cosine" else torch.linspace(1e-4, 0.05, timesteps)
        alphas = 1 - betas
        self.register_buffer("betas", betas)
        self.register_buffer("abar", torch.cumprod(alphas, 0))

    def q_sample(self, x0, t, noise):
        a = self.abar[t][:, None, None, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def forward(self, x0):
        t = torch.randint(0, self.T, (x0.shape[0],), device=x0.device)
        noise = torch.randn_like(x0)
        return F.mse_loss(self.net(self.q_sample(x0, t, noise), t), noise)

    @torch.no_grad()
    def sample(self, n, steps=20):
        dev = self.betas.device
        x = torch.randn(n, 1, self.image_size, self.image_size, device=dev)
        times = torch.linspace(self.T - 1, 0, steps).long().tolist()
        for i, t in enumerate(times):
            tt = torch.full((n,), t, device=dev, dtype=torch.long)
            eps = self.net(x, tt)
            a = self.abar[t]
            x0 = ((x - (1 - a).sqrt() * eps) / a.sqrt()).clamp(-1, 1)
            an = self.abar[times[i + 1]] if i + 1 < len(times) else torch.ones((), device=dev)
            x = an.sqrt() * x0 + (1 - an).sqrt() * eps
        return x
