"""The hook that does what DDP does: the same bits, also where 1 / replicas is rounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.buckets import Buckets
from lockstep.engine.exchange.hooks import all_reduce, attach, divide
from lockstep.engine.exchange.noise import ReplicaNoise
from lockstep.engine.exchange.traffic import Traffic, replicated
from lockstep.engine.group import Group
from replicas import on_replicas


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 50), nn.Tanh(), nn.Linear(50, 3))


def plain(module: nn.Module, group: Group) -> nn.Module:
    return DistributedDataParallel(module)


def hooked(module: nn.Module, group: Group) -> nn.Module:
    model = DistributedDataParallel(module)
    attach(model, all_reduce)
    return model


def measured(module: nn.Module, group: Group) -> nn.Module:
    model = DistributedDataParallel(module)
    ReplicaNoise.attach(model, 5 * group.world.size)
    return model


def counted(module: nn.Module, group: Group) -> nn.Module:
    return replicated(module, group, Traffic())


def watched(module: nn.Module, group: Group) -> nn.Module:
    return Buckets(module, group).model


WAYS: list[Callable[[nn.Module, Group], nn.Module]] = [hooked, measured, counted, watched]


@pytest.mark.parametrize("replicas", [2, 3])
def test_every_hook_leaves_the_gradient_that_ddp_leaves(replicas: int):
    def gradients(group: Group, way: Callable[[nn.Module, Group], nn.Module]) -> list[Tensor]:
        model = way(network(), group)
        generator = torch.Generator().manual_seed(group.world.rank)
        # The first step has other buckets than the later ones.
        for _ in range(2):
            model.zero_grad()
            model(torch.randn(5, 7, generator=generator)).square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    def work(group: Group) -> list[bool]:
        theirs = gradients(group, plain)
        return [
            all(torch.equal(a, b) for a, b in zip(gradients(group, way), theirs, strict=True))
            for way in WAYS
        ]

    assert on_replicas(replicas, work) == [[True] * len(WAYS)] * replicas


def test_a_division_by_three_has_other_bits():
    values = torch.arange(1.0, 100.0)
    assert not torch.equal(divide(values.clone(), 3), values / 3)
    assert torch.equal(divide(values.clone(), 4), values / 4)
