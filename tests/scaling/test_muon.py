"""Muon: singular values near one, and the steps that a plain loop in float64 would take."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lockstep.engine.run.checkpoint import pack_optimizer, unpack_optimizer
from lockstep.scaling.optimizers.muon import Muon, orthogonalised


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3), nn.Conv2d(6, 6, 3), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(6, 4)).double()


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[Tensor]:
    for step in steps:
        optimizer.zero_grad()
        (net(numbers(5, 3, 7, 7, seed=step)) * numbers(5, 4, seed=-1)).sum().backward()
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def quintic(values: Tensor, iterations: int) -> Tensor:
    for _ in range(iterations):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return values


@pytest.mark.parametrize("shape", [(4, 4), (4, 30), (30, 4), (1, 5)], ids=str)
@pytest.mark.parametrize("iterations", [0, 1, 3, 5])
def test_the_iteration_changes_singular_values_and_nothing_else(shape, iterations: int):
    matrix = numbers(*shape)
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    expected = u @ quintic(s / s.norm(), iterations).diag() @ v
    result = orthogonalised(matrix[None], iterations)[0]
    # Rounding of numbers about 1; an iteration triples it at most.
    assert torch.allclose(result, expected, rtol=0, atol=1e-15 * 50 * 3.5**iterations)


def test_five_iterations_bring_singular_values_near_one():
    s = torch.linalg.svdvals(orthogonalised(numbers(8, 16, 64)))
    assert s.min() > 0.65
    assert s.max() < 1.25


def test_matrices_of_one_batch_do_not_see_each_other():
    stack = numbers(3, 5, 9) * torch.tensor([1e-6, 1.0, 1e6])[:, None, None]
    alone = torch.cat([orthogonalised(matrix[None]) for matrix in stack])
    # Products of one matrix or of three may be added in another order.
    assert torch.allclose(orthogonalised(stack), alone, rtol=0, atol=1e-12)


def test_in_bf16_the_result_is_the_same_to_its_precision():
    matrix = numbers(1, 16, 200).float()
    low = orthogonalised(matrix, 3, torch.bfloat16)
    assert low.dtype == torch.float32
    # Eight bits of numbers whose rows have length 1, through nine products.
    assert (low - orthogonalised(matrix, 3)).norm() < 0.05 * low.norm()


def test_nothing_stays_nothing():
    assert not orthogonalised(torch.zeros(1, 3, 5)).any()
    assert not orthogonalised(torch.full((1, 3, 5), 1e-30), precision=torch.bfloat16).isnan().any()


def test_filters_take_the_steps_of_a_plain_loop():
    net, plain = model(), model()
    optimizer = Muon(net.parameters(), lr=0.1, momentum=0.6, iterations=3)
    result = train(net, optimizer, range(4))
    filters = [p for p in plain.parameters() if p.dim() == 4]
    others = [p for p in plain.parameters() if p.dim() != 4]
    sgd = torch.optim.SGD(others, lr=0.7, momentum=0.85, nesterov=True)
    momenta = [torch.zeros_like(p) for p in filters]
    for step in range(4):
        plain.zero_grad()
        (plain(numbers(5, 3, 7, 7, seed=step)) * numbers(5, 4, seed=-1)).sum().backward()
        sgd.step()
        for p, momentum in zip(filters, momenta, strict=True):
            momentum.mul_(0.6).add_(p.grad)
            u, s, v = torch.linalg.svd((p.grad + 0.6 * momentum).flatten(1), full_matrices=False)
            update = u @ quintic(s / s.norm(), 3).diag() @ v
            with torch.no_grad():
                p.mul_(len(p) ** 0.5 / p.norm()).sub_(0.1 * update.view(p.shape))
    for ours, theirs in zip(result, plain.parameters(), strict=True):
        # float64 through four steps of a network: far below a step of 0.1.
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-10)


def test_the_rest_is_sgd_with_its_own_rate_and_weight_decay():
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(147, 4)).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    muon = Muon(nets[0].parameters(), lr=0.02, rest=0.5, rest_weight_decay=0.1)
    sgd = torch.optim.SGD(
        nets[1].parameters(), lr=0.01, momentum=0.85, nesterov=True, weight_decay=0.1
    )
    ours, theirs = (train(n, o, range(4)) for n, o in zip(nets, (muon, sgd), strict=True))
    # The same sums, but for the order of a product or two.
    assert all(
        torch.allclose(a, b, rtol=1e-13, atol=1e-15) for a, b in zip(ours, theirs, strict=True)
    )


def test_the_rate_may_be_a_tensor_that_changes_in_place():
    number, tensor = model(), model()
    first = Muon(number.parameters(), lr=0.1)
    second = Muon(tensor.parameters(), lr=torch.tensor(0.1, dtype=torch.float64))
    for step in range(3):
        for group in first.param_groups:
            group["lr"] *= 0.5
        for group in second.param_groups:
            group["lr"].mul_(0.5)
        ours = train(number, first, range(step, step + 1))
        theirs = train(tensor, second, range(step, step + 1))
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_frozen_weights_and_those_without_a_gradient_stay():
    net = model()
    net[0].weight.requires_grad_(False)
    before = net[0].weight.clone()
    optimizer = Muon(net.parameters(), lr=0.1)
    optimizer.step()
    assert all(
        torch.equal(a, b) for a, b in zip(net.parameters(), model().parameters(), strict=True)
    )
    train(net, optimizer, range(2))
    assert torch.equal(net[0].weight, before)


def test_a_bank_of_zeros_is_no_nan():
    net = model()
    nn.init.zeros_(net[1].weight)
    assert all(p.isfinite().all() for p in train(net, Muon(net.parameters(), lr=0.1), range(2)))


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped():
    through = model()
    whole = train(through, Muon(through.parameters(), lr=0.1), range(4))
    net = model()
    optimizer = Muon(net.parameters(), lr=0.1)
    train(net, optimizer, range(2))
    again = Muon(net.parameters(), lr=0.1)
    unpack_optimizer(again, *pack_optimizer(optimizer))
    assert all(
        torch.equal(a, b) for a, b in zip(train(net, again, range(2, 4)), whole, strict=True)
    )


def test_memory_layout_does_not_matter():
    plain, strided = model(), model()
    for p in strided.parameters():
        if p.dim() == 4:
            p.data = p.data.contiguous(memory_format=torch.channels_last)
    first = train(plain, Muon(plain.parameters(), lr=0.1), range(3))
    second = train(strided, Muon(strided.parameters(), lr=0.1), range(3))
    # Convolutions of another layout add in another order.
    assert all(torch.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(first, second, strict=True))
