import torch
import torch.nn as nn


class GINLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.LayerNorm(2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, h, edges):
        agg = torch.zeros_like(h).index_add_(0, edges[1], h[edges[0]])
        return h + self.mlp((1 + self.eps) * h + agg)


class GIN(nn.Module):
    def __init__(self, n_types=5, d=48, layers=3):
        super().__init__()
        self.emb = nn.Embedding(n_types, d)
        self.layers = nn.ModuleList([GINLayer(d) for _ in range(layers)])
        self.out = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, batch):
        h = self.emb(batch.x)
        for layer in self.layers:
            h = layer(h, batch.edges)
        pooled = h.new_zeros(batch.num_graphs, h.size(1)).index_add_(0, batch.graph, h)
        return self.out(pooled).squeeze(-1)
