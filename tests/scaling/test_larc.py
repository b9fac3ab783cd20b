"""LARC takes LARS's steps where they are the smaller ones, SGD's where those are."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from layers import assert_same_steps, by_hand, follow, network, train, two_groups
from lockstep.scaling.optimizers.larc import LARC
from lockstep.scaling.optimizers.lars import LARS

RATES = [0.02, 0.01, 0.005, 0.03, 0.0, 0.02]


def paper(w: Tensor, g: Tensor, memory: dict, setting: dict) -> Tensor:
    """As LARS, but with the smaller of the local and the global rate."""
    decay, momentum = setting["decay"], setting["momentum"]
    rate = setting["rate"]
    if setting["adapts"]:
        local = setting["trust"] * w.norm() / (g.norm() + decay * w.norm() + setting["eps"])
        memory.setdefault("clipped", []).append(bool(local < rate))
        rate = min(float(local), rate)
    velocity = momentum * memory.get("velocity", 0.0) + rate * (g + decay * w)
    memory["velocity"] = velocity
    return (
        w - (momentum * velocity + rate * (g + decay * w)) if setting["nesterov"] else w - velocity
    )


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("adapt", [None, True, False])
def test_two_groups_take_the_clipped_steps(nesterov, decay, adapt):
    net, plain = network(), network()
    common = {"weight_decay": decay, "trust": 0.002, "eps": 1e-8, "momentum": 0.9}
    common["nesterov"] = nesterov
    second = {"weight_decay": 0.3, "adapt": adapt}
    optimizer = LARC(two_groups(net, lr=0.5, **second), lr=1.0, **common)
    for step, rate in enumerate(RATES):
        for group, times in zip(optimizer.param_groups, (1.0, 0.5), strict=True):
            group["lr"] = rate * times
        ours = train(net, optimizer, range(step, step + 1))
    groups = [{**common, **g} for g in two_groups(plain, times=0.5, **second)]
    clipped = set()

    def noted(w: Tensor, g: Tensor, memory: dict, setting: dict) -> Tensor:
        new = paper(w, g, memory, setting)
        clipped.update(memory.get("clipped", []))
        return new

    assert_same_steps(ours, by_hand(noted, groups, plain, RATES))
    # Both rates were the smaller one somewhere: the test has seen both.
    assert clipped == {True, False}


def test_below_every_local_rate_it_is_sgd():
    net, plain = network(), network()
    ours = train(net, LARC(net.parameters(), lr=1e-3, trust=1e3), range(4))
    sgd = torch.optim.SGD(plain.parameters(), lr=1e-3, momentum=0.9)
    assert_same_steps(ours, train(plain, sgd, range(4)))


def test_above_every_local_rate_its_layers_are_those_of_lars():
    larc = follow(partial(LARC, lr=1e3, trust=1e-3))
    lars = follow(partial(LARS, lr=1.0, trust=1e-3))
    for ours, theirs in zip(larc, lars, strict=True):
        if ours.dim() >= 2:
            assert_same_steps([ours], [theirs])


@given(scale=st.floats(1.0, 1e6))
@example(scale=1000.0)
def test_a_clipped_layer_moves_by_the_same_whatever_the_scale_of_its_gradient(scale: float):
    build = partial(LARC, lr=0.1, trust=1e-3, eps=0.0)
    assert_same_steps(follow(build, scale), follow(build))
