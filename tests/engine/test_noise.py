"""The noise scale from the exchange of replicas: the right number, and no bit of a gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.noise import ReplicaNoise
from lockstep.engine.group import Group
from lockstep.scaling.noise import Moments, NoiseScale, adam_diagonal, moments
from replicas import on_replicas

SIZE, SPREAD = 20, 3.0


class Quadratic(nn.Module):
    """|w - x|**2 / 2: the gradient is w minus the mean of the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.arange(1.0, SIZE + 1, dtype=torch.float64) / 10)

    def forward(self, x: Tensor) -> Tensor:
        return (self.weights - x).square().sum(1).mean() / 2


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_replicas_find_the_noise_scale_of_a_quadratic(replicas: int):
    def work(group: Group) -> tuple[float, float, float, int]:
        generator = torch.Generator().manual_seed(group.world.rank)
        model = DistributedDataParallel(Quadratic())
        batch = 8 * replicas
        noise = ReplicaNoise.attach(model, batch, NoiseScale(math.inf), every=50)
        for _ in range(1200):
            model.zero_grad()
            x = torch.randn((8, SIZE), generator=generator, dtype=torch.float64)
            model(SPREAD * x).backward()
            noise.step()
        estimate = noise.estimate()
        return estimate.value, estimate.low, estimate.high, estimate.steps

    answers = on_replicas(replicas, work)
    assert all(answer == answers[0] for answer in answers)
    value, low, high, steps = answers[0]
    truth = SIZE * SPREAD**2 / (torch.arange(1.0, SIZE + 1) / 10).square().sum().item()
    assert value == pytest.approx(truth, rel=0.05)
    assert low < truth < high
    assert steps == 1200


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3))


def inputs(rank: int, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn((4, 6), generator=generator)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("buckets", [25.0, 0.0005])
def test_listening_changes_no_bit(replicas: int, buckets: float):
    def work(group: Group) -> bool:
        seen = []
        for listens in (False, True):
            net = DistributedDataParallel(network(), bucket_cap_mb=buckets)
            noise = ReplicaNoise.attach(net, 4 * replicas) if listens else None
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for step in range(20):
                optimizer.zero_grad()
                net(inputs(group.world.rank, step)).square().mean().backward()
                if noise is not None:
                    noise.step()
                optimizer.step()
            seen.append([p.detach().clone() for p in net.parameters()])
            del net, noise
        return all(torch.equal(a, b) for a, b in zip(*seen, strict=True))

    assert on_replicas(replicas, work) == [True] * replicas


def local_gradients(replicas: int, step: int) -> list[list[Tensor]]:
    """What each replica computes, one after the other in this process."""
    found = []
    for rank in range(replicas):
        net = network()
        net(inputs(rank, step)).square().mean().backward()
        found.append([p.grad for p in net.parameters() if p.grad is not None])
    return found


def length(gradients: list[Tensor]) -> float:
    return sum(g.double().square().sum().item() for g in gradients)


def test_lengths_before_and_after_the_exchange_are_those_of_the_gradients():
    def work(group: Group) -> Moments:
        net = DistributedDataParallel(network(), bucket_cap_mb=0.0005)
        noise = ReplicaNoise.attach(net, 16)
        net(inputs(group.world.rank, 7)).square().mean().backward()
        noise.step()
        return noise.estimate().moments

    found = on_replicas(4, work)[0]
    each = local_gradients(4, 7)
    mean = [sum(parts) / 4 for parts in zip(*each, strict=True)]
    expected = moments(sum(map(length, each)) / 4, length(mean), 4, 16)
    # Lengths in float32, and differences of them.
    assert tuple(found) == pytest.approx(tuple(expected), rel=1e-4)


def test_adam_s_units_hold_for_replicas_too():
    def work(group: Group) -> Moments:
        net = DistributedDataParallel(network())
        adam = torch.optim.Adam(net.parameters(), lr=0.0, eps=1e-3)
        noise = ReplicaNoise.attach(net, 8, NoiseScale(1.001), adam_diagonal(adam))
        for step in range(2):
            net.zero_grad()
            net(inputs(group.world.rank, step)).square().mean().backward()
            noise.step()
            adam.step()
        return noise.estimate().moments

    found = on_replicas(2, work)[0]
    first, second = (local_gradients(2, step) for step in (0, 1))
    # After one step Adam divides by that step's own absolute gradient.
    roots = [(sum(parts) / 2).abs() + 1e-3 for parts in zip(*first, strict=True)]
    each = [[g / root for g, root in zip(one, roots, strict=True)] for one in second]
    mean = [sum(parts) / 2 for parts in zip(*each, strict=True)]
    expected = moments(sum(map(length, each)) / 2, length(mean), 4, 8)
    # A memory of 1.001 steps keeps a thousandth of the step before.
    assert tuple(found) == pytest.approx(tuple(expected), rel=0.01)


def test_a_backward_pass_without_an_exchange_is_part_of_the_next():
    def work(group: Group) -> int:
        net = DistributedDataParallel(network())
        noise = ReplicaNoise.attach(net, 16)
        for step in range(6):
            if step % 2 == 0:
                with net.no_sync():
                    net(inputs(group.world.rank, step)).square().mean().backward()
            else:
                net(inputs(group.world.rank, step)).square().mean().backward()
            noise.step()
        return noise.estimate().steps

    assert on_replicas(2, work) == [3, 3]


def test_the_message_for_one_replica_names_what_to_use_instead():
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        with pytest.raises(ValueError, match="Use StepNoise"):
            ReplicaNoise.attach(DistributedDataParallel(network()), 8)
    finally:
        torch.distributed.destroy_process_group()
