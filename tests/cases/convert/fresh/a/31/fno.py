import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralConv1d(nn.Module):
    def __init__(self, cin, cout, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(cin, cout, modes, 2) / (cin * cout))    # real & imaginary part

    def forward(self, x):
        h = torch.fft.rfft(x)
        out = torch.zeros(x.size(0), self.weight.size(1), h.size(-1), dtype=h.dtype, device=x.device)
        out[..., :self.modes] = torch.einsum("bim,iom->bom", h[..., :self.modes], torch.view_as_complex(self.weight))
        return torch.fft.irfft(out, n=x.size(-1))


class FNO1d(nn.Module):
    def __init__(self, modes=12, width=24, depth=3):
        super().__init__()
        self.lift = nn.Conv1d(3, width, 1)
        self.spec = nn.ModuleList([SpectralConv1d(width, width, modes) for _ in range(depth)])
        self.skip = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in range(depth)])
        self.film = nn.Linear(2, 2 * width)
        self.proj = nn.Sequential(nn.Conv1d(width, 64, 1), nn.GELU(), nn.Conv1d(64, 1, 1))

    def forward(self, u0, params):
        p = params.unsqueeze(-1).expand(-1, -1, u0.size(-1))
        h = self.lift(torch.cat([u0.unsqueeze(1), p], 1))
        g, b = self.film(params).unsqueeze(-1).chunk(2, 1)
        for s, k in zip(self.spec, self.skip):
            h = F.gelu((s(h) + k(h)) * (1 + g) + b)
        return self.proj(h).squeeze(1)
