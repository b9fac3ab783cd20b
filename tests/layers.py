"""A small network with every kind of layer, and its training, for tests of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.scaling.optimizers.lamb import LAMB
from lockstep.scaling.optimizers.larc import LARC
from lockstep.scaling.optimizers.lars import LARS
from lockstep.scaling.optimizers.novograd import NovoGrad

LAYERWISE = (LARS, LARC, LAMB, NovoGrad)

Setting = dict[str, Any]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def network() -> nn.Sequential:
    """Filters, batch norm, a matrix, biases; weights of the norm that are not all 1."""
    torch.manual_seed(0)
    net = nn.Sequential(
        # With a bias here, which batch norm takes away again, gradients would be mere rounding.
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Conv2d(4, 6, 3),
        nn.Flatten(),
        nn.Linear(54, 5),
    ).double()
    nn.init.normal_(net[1].weight)
    return net


def gradients(net: nn.Module, step: int) -> None:
    """Those of a real loss on the batch of this step."""
    net.zero_grad()
    dtype = next(net.parameters()).dtype
    outputs = net(numbers(8, 3, 7, 7, seed=step).to(dtype))
    targets = torch.arange(8) % 5
    nn.functional.cross_entropy(outputs, targets).backward()


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[Tensor]:
    for step in steps:
        gradients(net, step)
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def follow(
    build: Callable[[Any], torch.optim.Optimizer], factor: float = 1.0, layer: int = 0
) -> list[Tensor]:
    """Weights after three steps along fixed gradients; those of one layer times `factor`."""
    net = network()
    optimizer = build(net.parameters())
    for step in range(3):
        for place, p in enumerate(net.parameters()):
            scale = factor if place == layer else 1.0
            p.grad = scale * numbers(*p.shape, seed=100 * step + place)
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def two_groups(net: nn.Sequential, **second: Any) -> list[dict[str, Any]]:
    """The last layer in a group of its own."""
    rest = [p for layer in net[:-1] for p in layer.parameters()]
    return [{"params": rest}, {"params": list(net[-1].parameters()), **second}]


def by_hand(
    update: Callable[[Tensor, Tensor, dict[str, Any], Setting], Tensor],
    groups: list[Setting],
    net: nn.Module,
    rates: list[float],
) -> list[Tensor]:
    """Training by `update` (weight, gradient, own memory, settings) of one parameter at a time.

    Settings are those of the parameter's group, with `rate`, `adapts` and `decay` for this step.
    """
    memory: dict[Tensor, dict[str, Any]] = {p: {} for p in net.parameters()}
    for step, rate in enumerate(rates):
        gradients(net, step)
        for group in groups:
            for p in group["params"]:
                adapt = group.get("adapt")
                setting = {
                    **group,
                    "rate": rate * group.get("times", 1.0),
                    "adapts": p.dim() >= 2 if adapt is None else adapt,
                    "decay": group["weight_decay"] if adapt or p.dim() >= 2 else 0.0,
                }
                new = update(p.detach().clone(), p.grad, memory[p], setting)
                with torch.no_grad():
                    p.copy_(new)
    return [p.detach().clone() for p in net.parameters()]


def assert_same_steps(ours: list[Tensor], theirs: list[Tensor]) -> None:
    """Equal but for rounding.

    A few steps of a small network in float64 whose weights are about 1: the order of sums and
    products moves the last bits (2e-16), and a step passes them on some ten times enlarged.
    """
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)
