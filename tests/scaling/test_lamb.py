"""LAMB takes the steps of the paper's equations."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from layers import assert_same_steps, by_hand, follow, network, train, two_groups
from lockstep.scaling.optimizers.lamb import LAMB

RATES = [0.02, 0.01, 0.005, 0.03, 0.0, 0.02]


def paper(w: Tensor, g: Tensor, memory: dict, setting: dict) -> Tensor:
    """Algorithm 2 of You et al. 2019, one layer; the function of norms is the identity."""
    beta1, beta2 = setting["betas"]
    memory["t"] = t = memory.get("t", 0) + 1
    memory["m"] = beta1 * memory.get("m", 0.0) + (1 - beta1) * g
    memory["v"] = beta2 * memory.get("v", 0.0) + (1 - beta2) * g * g
    m, v = memory["m"] / (1 - beta1**t), memory["v"] / (1 - beta2**t)
    update = m / (v.sqrt() + setting["eps"]) + setting["decay"] * w
    ratio = w.norm() / update.norm() if setting["adapts"] else 1.0
    return w - setting["rate"] * ratio * update


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.5), (0.5, 0.3)])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("adapt", [None, True, False])
def test_two_groups_take_the_steps_of_the_paper(betas, eps, decay, adapt):
    net, plain = network(), network()
    common = {"weight_decay": decay, "eps": eps, "betas": betas}
    second = {"weight_decay": 0.3, "adapt": adapt}
    optimizer = LAMB(two_groups(net, lr=0.5, **second), lr=1.0, **common)
    for step, rate in enumerate(RATES):
        for group, times in zip(optimizer.param_groups, (1.0, 0.5), strict=True):
            group["lr"] = rate * times
        ours = train(net, optimizer, range(step, step + 1))
    groups = [{**common, **g} for g in two_groups(plain, times=0.5, **second)]
    assert_same_steps(ours, by_hand(paper, groups, plain, RATES))


def test_without_adaptation_it_is_adam():
    net, plain = network(), network()
    options = {"lr": 0.01, "weight_decay": 0.0, "eps": 1e-8}
    ours = train(net, LAMB(net.parameters(), adapt=False, **options), range(5))
    adam = torch.optim.AdamW(plain.parameters(), **options)
    assert_same_steps(ours, train(plain, adam, range(5)))


@given(scale=st.floats(1e-6, 1e6))
@example(scale=1000.0)
def test_a_layer_moves_by_the_same_whatever_the_scale_of_its_gradient(scale: float):
    # Decay too: Adam's step has lost the scale before the decay is added.
    build = partial(LAMB, lr=0.1, weight_decay=0.1, eps=0.0)
    assert_same_steps(follow(build, scale), follow(build))


def test_a_step_is_the_rates_share_of_the_layers_length():
    net = network()
    before = [p.detach().clone() for p in net.parameters()]
    after = train(net, LAMB(net.parameters(), lr=0.03), range(1))
    for old, new in zip(before, after, strict=True):
        if old.dim() >= 2:
            # Rounding of float64.
            assert torch.allclose((new - old).norm(), 0.03 * old.norm(), rtol=1e-12)
