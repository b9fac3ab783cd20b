import torch
import torch.nn as nn


def mlp(*sizes):
    mods = []
    for i in range(len(sizes) - 1):
        mods.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            mods.append(nn.ReLU())
    return nn.Sequential(*mods)


class TwinQ(nn.Module):
    def __init__(self, obs, act, h=64):
        super().__init__()
        self.q1, self.q2 = mlp(obs + act, h, h, 1), mlp(obs + act, h, h, 1)

    def both(self, s, a):
        sa = torch.cat([s, a], 1)
        return self.q1(sa).squeeze(1), self.q2(sa).squeeze(1)

    def forward(self, s, a):
        return torch.min(*self.both(s, a))


class ValueFunction(nn.Module):
    def __init__(self, obs, h=64):
        super().__init__()
        self.v = mlp(obs, h, h, 1)

    def forward(self, s):
        return self.v(s).squeeze(1)


class GaussianPolicy(nn.Module):
    def __init__(self, obs, act, h=64):
        super().__init__()
        self.net = mlp(obs, h, h, act)
        self.log_std = nn.Parameter(torch.zeros(act))

    def forward(self, s):
        return torch.distributions.Normal(torch.tanh(self.net(s)), self.log_std.clamp(-4, 1).exp())

    @torch.no_grad()
    def act(self, s_np, device):
        s = torch.as_tensor(s_np, dtype=torch.float32, device=device)
        return self(s).mean.cpu().numpy()
