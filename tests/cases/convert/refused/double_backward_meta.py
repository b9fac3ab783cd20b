# refused: double_backward
"""MAML on sine waves."""

import higher
import torch
from torch import nn


def task():
    shift = torch.rand(1) * 3.14
    x = torch.rand(10, 1) * 10 - 5
    return x, torch.sin(x + shift), x + 0.1, torch.sin(x + 0.1 + shift)


def main():
    net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
    meta = torch.optim.Adam(net.parameters(), lr=1e-3)
    inner = torch.optim.SGD(net.parameters(), lr=1e-2)
    for step in range(10000):
        meta.zero_grad()
        for _ in range(4):
            xs, ys, xq, yq = task()
            with higher.innerloop_ctx(net, inner, copy_initial_weights=False) as (fnet, diffopt):
                diffopt.step(nn.functional.mse_loss(fnet(xs), ys))
                nn.functional.mse_loss(fnet(xq), yq).backward()
        meta.step()


if __name__ == "__main__":
    main()
