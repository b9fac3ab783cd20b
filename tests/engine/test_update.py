"""From gradients to new weights: what a recipe asks for, in as few kernels as possible."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW

from lockstep.engine.step.update import Update, _as_laid_out
from replicas import small

CPU = torch.device("cpu")


def model() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.Linear(8, 3))
    for p in net.parameters():
        if p.dim() == 4:
            p.data = p.data.contiguous(memory_format=torch.channels_last)
    return net.double()


def gradients(net: nn.Module, step: int) -> None:
    torch.manual_seed(step)
    net(torch.randn(5, 1, 4, 4, dtype=torch.float64)).square().sum().backward()


def after(net: nn.Module, optimizer: Any, rates: list[float]) -> list[Tensor]:
    update = Update(small(optimizer=optimizer, learning_rate=0.1), net, CPU, exact=False)
    for step, rate in enumerate(rates):
        gradients(net, step)
        update.set_rate(rate)
        update.step()
        update.forget_gradients()
    assert all(p.grad is None for p in net.parameters())
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD,
        partial(SGD, momentum=0.9, nesterov=True, weight_decay=0.01),
        Adam,
        partial(AdamW, weight_decay=0.1),
    ],
    ids=["sgd", "nesterov", "adam", "adamw"],
)
def test_the_fused_update_is_the_optimizers_own(optimizer):
    rates = [0.1, 0.05, 0.2]
    plain = model()
    own = optimizer(plain.parameters(), lr=0.1, foreach=False)
    for step, rate in enumerate(rates):
        gradients(plain, step)
        own.param_groups[0]["lr"] = rate
        own.step()
        own.zero_grad()
    fused = after(model(), optimizer, rates)
    # Double precision, three steps: the kernels differ in the order of a product and a sum.
    for a, b in zip(fused, plain.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "choice", [{"fused": False}, {"foreach": True}, {"foreach": False}], ids=str
)
def test_the_choice_of_the_recipe_stays(choice: dict):
    update = Update(small(optimizer=partial(SGD, **choice)), model(), CPU, exact=False)
    assert not update.fused
    assert all(not group["fused"] for group in update.optimizer.param_groups)


def test_torchs_optimizers_are_fused_and_others_left_alone():
    class Own(SGD):
        pass

    assert Update(small(optimizer=SGD), model(), CPU, exact=False).fused
    assert not Update(small(optimizer=Own), model(), CPU, exact=False).fused
    sparse = nn.Sequential(nn.Embedding(4, 3, sparse=True))
    assert not Update(small(optimizer=SGD), sparse, CPU, exact=False).fused


def test_groups_keep_the_ratio_of_their_rates():
    def two(parameters, lr: float):
        first, *rest = parameters
        return SGD([{"params": [first], "lr": 3 * lr}, {"params": rest}], lr=lr)

    update = Update(small(optimizer=two, learning_rate=0.1), model(), CPU, exact=False)
    update.set_rate(0.5)
    assert [g["lr"] for g in update.optimizer.param_groups] == pytest.approx([1.5, 0.5])


def test_an_update_on_the_cpu_cannot_be_recorded_and_says_why():
    assert "SGD takes its learning rate as a number" in str(
        Update(small(optimizer=SGD), model(), CPU, exact=False).obstacle
    )


@pytest.mark.parametrize("shape", [(4, 1, 3, 3), (4, 3, 1, 1), (1, 3, 2, 2), (4, 3, 2, 2)], ids=str)
def test_a_gradient_takes_the_strides_of_its_parameter_and_keeps_its_values(shape):
    values = torch.arange(float(torch.Size(shape).numel())).view(shape)
    for layout in (torch.contiguous_format, torch.channels_last):
        p = torch.empty(shape).contiguous(memory_format=layout)
        for other in (torch.contiguous_format, torch.channels_last):
            laid = _as_laid_out(values.contiguous(memory_format=other), p)
            assert laid.stride() == p.stride()
            assert torch.equal(laid, values)
