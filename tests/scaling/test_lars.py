"""LARS takes the steps of the paper's equations."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from layers import assert_same_steps, by_hand, follow, network, numbers, train, two_groups
from lockstep.scaling.optimizers.lars import LARS
from lockstep.scaling.optimizers.layerwise import norms

RATES = [2.0, 1.0, 0.5, 3.0, 0.0, 1.0]


def paper(w: Tensor, g: Tensor, memory: dict, setting: dict) -> Tensor:
    """Algorithm 1 of You et al. 2017, one layer."""
    decay, momentum = setting["decay"], setting.get("momentum", 0.9)
    rate = setting["rate"]
    if setting["adapts"]:
        rate *= setting["trust"] * w.norm() / (g.norm() + decay * w.norm() + setting["eps"])
    velocity = momentum * memory.get("velocity", 0.0) + rate * (g + decay * w)
    memory["velocity"] = velocity
    if setting.get("nesterov"):
        return w - (momentum * velocity + rate * (g + decay * w))
    return w - velocity


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("adapt", [None, True, False])
def test_two_groups_take_the_steps_of_the_paper(nesterov, decay, momentum, adapt):
    if nesterov and not momentum:
        return
    net, plain = network(), network()
    common = {"weight_decay": decay, "trust": 0.02, "eps": 1e-8, "momentum": momentum}
    common["nesterov"] = nesterov
    second = {"weight_decay": 0.3, "adapt": adapt}
    optimizer = LARS(two_groups(net, lr=0.5, **second), lr=1.0, **common)
    for step, rate in enumerate(RATES):
        for group, times in zip(optimizer.param_groups, (1.0, 0.5), strict=True):
            group["lr"] = rate * times
        ours = train(net, optimizer, range(step, step + 1))
    groups = [{**common, **g} for g in two_groups(plain, times=0.5, **second)]
    assert_same_steps(ours, by_hand(paper, groups, plain, RATES))


@given(scale=st.floats(1e-6, 1e6))
@example(scale=1000.0)
def test_a_layer_moves_by_the_same_whatever_the_scale_of_its_gradient(scale: float):
    # Without eps, which is small only beside gradients that are not; without decay, which adds
    # something to a gradient that the scale does not change.
    build = partial(LARS, lr=1.0, trust=0.02, eps=0.0)
    assert_same_steps(follow(build, scale), follow(build))


def test_a_layer_that_is_not_adapted_moves_with_the_scale_of_its_gradient():
    build = partial(LARS, lr=1.0, trust=0.02, adapt=False)
    assert not torch.allclose(follow(build, 1000.0)[0], follow(build)[0])


def test_a_rate_of_nothing_moves_nothing_and_momentum_starts_after_it():
    net, late = network(), network()
    optimizer = LARS(net.parameters(), lr=0.0, trust=0.02)
    start = [p.detach().clone() for p in net.parameters()]
    for ours, theirs in zip(train(net, optimizer, range(2)), start, strict=True):
        assert torch.equal(ours, theirs)
    optimizer.param_groups[0]["lr"] = 1.0
    ours = train(net, optimizer, range(2, 5))
    assert_same_steps(ours, train(late, LARS(late.parameters(), lr=1.0, trust=0.02), range(2, 5)))


@pytest.mark.parametrize("shape", [(3,), (37,), (33, 17, 3, 3), (300, 301)], ids=str)
def test_a_norm_has_the_same_bits_wherever_its_operand_lies(shape):
    # In exact mode gradients lie at odd places in DDP's buckets, and elsewhere without DDP.
    values = numbers(*shape).float()
    found = set()
    for offset in range(17):
        there = torch.empty(values.numel() + offset)[offset:].view(shape).copy_(values)
        found.add(norms([there]).item())
    assert len(found) == 1
