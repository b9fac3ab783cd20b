"""A training loop of one's own with lockstep.Loop."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

import lockstep

parser = argparse.ArgumentParser()
parser.add_argument("--fast", action="store_true")
parser.add_argument("--bug", action="store_true")
given = parser.parse_args()

generator = torch.Generator().manual_seed(1)
data = [(torch.randn(6, generator=generator), n % 3) for n in range(70)]

with lockstep.Loop(global_batch=16, exact=not given.fast) as loop:
    model = loop.model(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)))
    optimizer = loop.optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2))
    batches = loop.batches(data)

    def loss(batch):
        scores = model(batch[0])
        return F.cross_entropy(scores, batch[1], reduction="sum"), len(scores)

    for epoch in loop.epochs(2):
        for batch in batches:
            if given.bug:
                optimizer.param_groups[0]["lr"] = 1e-2 * loop.replicas
            loop.step(batch, loss, optimizer)
