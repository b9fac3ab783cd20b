"""NovoGrad takes the steps of the paper's equations."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from layers import assert_same_steps, by_hand, follow, network, train, two_groups
from lockstep.scaling.optimizers.novograd import NovoGrad

RATES = [0.02, 0.01, 0.005, 0.03, 0.0, 0.02]


def paper(w: Tensor, g: Tensor, memory: dict, setting: dict) -> Tensor:
    """Algorithm 1 of Ginsburg et al. 2019, one layer; vectors are layers too."""
    beta1, beta2 = setting["betas"]
    share = g
    if setting["adapt"] is not False:
        square = g.norm() ** 2
        memory["v"] = beta2 * memory["v"] + (1 - beta2) * square if "v" in memory else square
        share = g / (memory["v"].sqrt() + setting["eps"])
    memory["m"] = beta1 * memory.get("m", 0.0) + share + setting["decay"] * w
    return w - setting["rate"] * memory["m"]


@pytest.mark.parametrize("betas", [(0.95, 0.98), (0.0, 0.25), (0.9, 0.0)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("adapt", [None, True, False])
def test_two_groups_take_the_steps_of_the_paper(betas, decay, adapt):
    net, plain = network(), network()
    common = {"weight_decay": decay, "eps": 1e-8, "betas": betas, "adapt": None}
    second = {"weight_decay": 0.3, "adapt": adapt}
    optimizer = NovoGrad(two_groups(net, lr=0.5, **second), lr=1.0, **common)
    for step, rate in enumerate(RATES):
        for group, times in zip(optimizer.param_groups, (1.0, 0.5), strict=True):
            group["lr"] = rate * times
        ours = train(net, optimizer, range(step, step + 1))
    groups = [{**common, **g} for g in two_groups(plain, times=0.5, **second)]
    assert_same_steps(ours, by_hand(paper, groups, plain, RATES))


@pytest.mark.parametrize("layer", [0, 1])
@given(scale=st.floats(1e-6, 1e6))
@example(scale=1000.0)
def test_a_layer_moves_by_the_same_whatever_the_scale_of_its_gradient(layer: int, scale: float):
    # A matrix or a bias; decay is added to a gradient that has lost its scale.
    build = partial(NovoGrad, lr=0.1, weight_decay=0.1, eps=0.0)
    assert_same_steps(follow(build, scale, layer), follow(build))


def test_the_first_step_has_the_length_of_the_rate():
    net = network()
    before = [p.detach().clone() for p in net.parameters()]
    after = train(net, NovoGrad(net.parameters(), lr=0.03), range(1))
    for old, new in zip(before, after, strict=True):
        # eps beside the norm of a gradient of 1e-2 and more: a millionth.
        assert torch.allclose((new - old).norm(), old.new_tensor(0.03), rtol=1e-5)


def test_a_second_moment_is_one_number_for_each_layer():
    net = network()
    optimizer = NovoGrad(net.parameters())
    assert all(optimizer.state[p]["norm_sq"].numel() == 1 for p in net.parameters())
