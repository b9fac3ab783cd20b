"""PowerSGD: what is sent, what is remembered, and that nothing is lost."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lockstep.engine.exchange.compression.powersgd import RANK, PowerSGD, compresses, payload
from lockstep.engine.group import Group
from replicas import on_replicas

SHAPES = [(48, 40), (7,), (), (24, 3, 3, 3), (3, 2)]
# A few products of small matrices in double precision.
ROUNDING = 1e-11


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]


def gradients(step: int, rank: int, low_rank: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    flat = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    if low_rank:
        # Of every rank's own, so that the mean over two replicas has the rank that is sent.
        for number in (0, 3):
            rows, columns = flat[number].flatten(1).shape
            left = torch.randn(rows, RANK // 2, generator=generator, dtype=torch.float64)
            right = torch.randn(RANK // 2, columns, generator=generator, dtype=torch.float64)
            flat[number] = left @ right
    return torch.cat([g.flatten() for g in flat])


def test_large_matrices_are_compressed_and_nothing_else():
    assert [compresses(p.shape) for p in parameters()] == [True, False, False, True, False]
    assert not compresses(torch.Size([0, 100]))
    assert [payload(p) for p in parameters()] == [RANK * 88, 7, 1, RANK * 51, 6]


def test_a_gradient_of_low_rank_arrives_whole():
    def work(group: Group) -> float:
        exchange, own = PowerSGD(), parameters()
        mean = sum(gradients(0, rank, low_rank=True) for rank in range(2)) / 2
        for _ in range(3):
            buffer = gradients(0, group.world.rank, low_rank=True)
            exchange(own, buffer, None)
        return (buffer - mean).abs().max().item()

    assert max(on_replicas(2, work)) < ROUNDING


@pytest.mark.parametrize("replicas", [2, 4])
def test_the_arrived_and_the_missing_parts_add_up_to_the_gradients(replicas: int):
    """Error feedback in one sentence: late, but never lost."""

    def work(group: Group) -> tuple[float, list[bytes]]:
        exchange, own = PowerSGD(), parameters()
        given = arrived = torch.zeros(len(gradients(0, 0)), dtype=torch.float64)
        bits = []
        for step in range(5):
            buffer = gradients(step, group.world.rank)
            exchange(own, buffer, None)
            bits.append(buffer.numpy().tobytes())
            arrived = arrived + buffer
            given = given + sum(gradients(step, r) for r in range(replicas)) / replicas
        state = exchange.state(nn.ParameterList(own))
        arrived[:1920] += state["missing/0"].flatten()
        arrived[1928:2576] += state["missing/3"].flatten()
        return (given - arrived).abs().max().item(), bits

    answers = on_replicas(replicas, work)
    assert max(gap for gap, _ in answers) < ROUNDING
    assert all(bits == answers[0][1] for _, bits in answers)


def test_the_first_steps_are_sent_whole_and_a_loaded_state_counts_on():
    def work(group: Group) -> list[bool]:
        own = parameters()
        model = nn.ParameterList(own)

        def exact(exchange: PowerSGD, step: int) -> bool:
            mean = sum(gradients(step, rank) for rank in range(2)) / 2
            buffer = gradients(step, group.world.rank)
            exchange(own, buffer, None)
            return torch.allclose(buffer, mean, rtol=0, atol=ROUNDING)

        first = PowerSGD(whole=3)
        answers = [exact(first, step) for step in range(2)]
        later = PowerSGD(whole=3)
        later.load(model, first.state(model), step=2)
        return answers + [exact(later, step) for step in (2, 3)]

    assert on_replicas(2, work) == [[True, True, True, False]] * 2


@pytest.mark.parametrize("value", [0.0, 1e-30])
def test_gradients_of_nothing_stay_finite_and_learning_goes_on(value: float):
    def work(group: Group) -> tuple[bool, bool]:
        exchange, own = PowerSGD(), [nn.Parameter(torch.zeros(48, 40))]
        for _ in range(3):
            buffer = torch.full((48 * 40,), value)
            exchange(own, buffer, None)
        finite = bool(buffer.isfinite().all())
        buffer = torch.ones(48 * 40)
        exchange(own, buffer, None)
        return finite, bool((buffer - 1).abs().max() < 1e-4)

    assert on_replicas(2, work) == [(True, True)] * 2
