import torch
from torch import nn


class NeuMF(nn.Module):
    """GMF branch + MLP branch."""

    def __init__(self, n_users, n_items, k=16, layers=(32, 16)):
        super().__init__()
        self.u_gmf, self.i_gmf = nn.Embedding(n_users, k), nn.Embedding(n_items, k)
        self.u_mlp, self.i_mlp = nn.Embedding(n_users, k), nn.Embedding(n_items, k)
        for e in (self.u_gmf, self.i_gmf, self.u_mlp, self.i_mlp):
            nn.init.normal_(e.weight, std=0.05)
        mlp, d = [], 2 * k
        for h in layers:
            mlp += [nn.Linear(d, h), nn.ReLU()]
            d = h
        self.mlp = nn.Sequential(*mlp)
        self.head = nn.Linear(k + d, 1)

    def forward(self, users, items):
        """users (B,), items (B, M) -> scores (B, M)"""
        u = users[:, None].expand_as(items)
        g = self.u_gmf(u) * self.i_gmf(items)
        m = self.mlp(torch.cat([self.u_mlp(u), self.i_mlp(items)], -1))
        return self.head(torch.cat([g, m], -1)).squeeze(-1)
