"""Random molecules-like graphs; the property to predict depends on cycles and on node types."""
from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Graph:
    x: torch.Tensor        # (n,) node types
    edges: torch.Tensor    # (2, m), both directions
    y: float


@dataclass
class Batch:
    x: torch.Tensor
    edges: torch.Tensor
    graph: torch.Tensor    # graph index of each node
    y: torch.Tensor

    @property
    def num_graphs(self):
        return len(self.y)

    def to(self, device):
        return Batch(self.x.to(device), self.edges.to(device), self.graph.to(device), self.y.to(device))


def random_graph(rng, n_types=5):
    n = rng.integers(6, 15)
    types = rng.integers(n_types, size=n)
    e = {(int(rng.integers(i)), i) for i in range(1, n)}
    for _ in range(rng.integers(0, 4)):
        a, b = sorted(rng.choice(n, 2, replace=False).tolist())
        e.add((a, b))
    edges = np.array(sorted(e)).T
    deg = np.bincount(edges.ravel(), minlength=n)
    value = np.array([-1.0, 0.5, 1.0, -0.3, 0.0])[types]
    y = (value * deg).sum() / 4 + 0.8 * (edges.shape[1] - n + 1) + 0.5 * np.sum(types[edges[0]] == types[edges[1]])
    both = np.concatenate([edges, edges[::-1]], 1)
    return Graph(torch.as_tensor(types), torch.as_tensor(both.copy()), float(y + rng.normal(0, 0.05)))


def make_split(n, seed):
    rng = np.random.default_rng(seed)
    return [random_graph(rng) for _ in range(n)]


def collate(graphs):
    xs, es, gs, off = [], [], [], 0
    for k, g in enumerate(graphs):
        xs.append(g.x)
        es.append(g.edges + off)
        gs.append(torch.full((len(g.x),), k))
        off += len(g.x)
    return Batch(torch.cat(xs), torch.cat(es, 1), torch.cat(gs), torch.tensor([g.y for g in graphs]))
