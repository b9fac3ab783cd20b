"""Layers in stages: the weights of one process, and as many bytes as the cut is wide."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lockstep.engine.exchange.traffic import Traffic, replicated
from lockstep.engine.group import Group
from lockstep.engine.pipeline import Pipeline, cut, largest_part
from lockstep.engine.step.metrics import cross_entropy
from lockstep.errors import PlanError
from lockstep.world import World
from replicas import on_replicas

WIDTH, BATCHES = 6, (12, 12, 7)
"""The last batch is uneven: it makes one micro-batch."""


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3)
    ).double()


def batch(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    size = BATCHES[number]
    inputs = torch.randn(size, 5, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (size,), generator=generator)


def train(group: Group, **options: object) -> tuple[dict[str, Tensor], list[float | None]]:
    pipeline = Pipeline(network(), group, loss=cross_entropy, **options)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(pipeline.module.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for number in range(len(BATCHES)):
        optimizer.zero_grad()
        loss = pipeline.step(*batch(number))
        losses.append(None if loss is None else float(loss))
        optimizer.step()
    return pipeline.weights(), losses


def plain() -> tuple[dict[str, Tensor], list[float]]:
    """A training as one writes it by hand: whole batches, one process."""
    net, losses = network(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for number in range(len(BATCHES)):
        inputs, targets = batch(number)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs), targets)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return net.state_dict(), losses


def alone() -> Group:
    return Group(World())


@pytest.mark.parametrize("name", ["ScheduleGPipe", "Schedule1F1B"])
def test_two_stages_reach_the_weights_of_one_process_bit_for_bit(name: str):
    # It takes a second to import.
    schedule = getattr(importlib.import_module("torch.distributed.pipelining"), name)
    one, losses = train(alone(), micro_batches=4)
    for rank, (weights, told) in enumerate(
        on_replicas(2, lambda group: train(group, micro_batches=4, schedule=schedule))
    ):
        assert list(weights) == list(one)
        assert all(torch.equal(weights[name], one[name]) for name in one)
        assert told == (losses if rank == 1 else [None] * 3)


@pytest.mark.parametrize(("processes", "micro_batches"), [(1, 1), (1, 3), (2, 1), (3, 4)])
def test_training_in_stages_is_training(processes: int, micro_batches: int):
    def work(group: Group) -> tuple[dict[str, Tensor], list[float | None]]:
        return train(group, micro_batches=micro_batches)

    expected, losses = plain()
    found = [work(alone())] if processes == 1 else on_replicas(processes, work)
    for weights, told in found:
        for name, tensor in expected.items():
            # Three steps in float64 of sums over a dozen samples whose order differs: some 1e-15
            # each, passed on by a network whose layers enlarge it some ten times.
            assert torch.allclose(weights[name], tensor, rtol=1e-12, atol=1e-12)
        assert told in ([None] * 3, pytest.approx(losses, rel=1e-12))
    assert found[-1][1] == pytest.approx(losses, rel=1e-12)


def test_the_stages_send_the_activations_at_the_cut_and_their_gradients():
    def work(group: Group) -> tuple[int, int]:
        pipeline = Pipeline(network(), group, loss=cross_entropy, micro_batches=4)
        for _ in range(2):
            pipeline.step(*batch(0))
        return pipeline.traffic.messages, pipeline.traffic.bytes

    # Forth 12 samples of 6 float64 in 4 messages, and as much back; the last step alone.
    assert on_replicas(2, work) == [(4, 12 * WIDTH * 8)] * 2


def test_data_parallelism_gives_the_gradients_to_the_all_reduce():
    def work(group: Group) -> tuple[Traffic, list[Tensor]]:
        traffic = Traffic()
        model = replicated(network(), group, traffic)
        inputs, targets = batch(0)
        mine = slice(6 * group.world.rank, 6 * group.world.rank + 6)
        for _ in range(2):
            traffic.begin()
            model.zero_grad()
            nn.functional.cross_entropy(model(inputs[mine]), targets[mine]).backward()
        return traffic, [p.grad.clone() for p in model.parameters() if p.grad is not None]

    net = network()
    inputs, targets = batch(0)
    nn.functional.cross_entropy(net(inputs), targets).backward()
    for traffic, gradients in on_replicas(2, work):
        assert traffic.bytes == sum(p.nbytes for p in net.parameters())
        for ours, p in zip(gradients, net.parameters(), strict=True):
            # Sums of two halves instead of one whole, in float64.
            assert torch.allclose(ours, p.grad, rtol=1e-12, atol=1e-14)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.data())
def test_every_stage_gets_a_stretch_of_layers(sizes: list[int], data: st.DataObject):
    parts = data.draw(st.integers(1, len(sizes)))
    ends = cut(sizes, parts)
    assert ends[0] == 0
    assert ends[-1] == len(sizes)
    assert ends == sorted(set(ends))
    assert len(ends) == parts + 1


def test_equal_layers_make_equal_stages():
    assert cut([1] * 8, 4) == [0, 2, 4, 6, 8]
    assert cut([100, 1, 1, 1], 2) == [0, 1, 4]
    assert cut([1, 1, 1, 100], 2) == [0, 3, 4]


@given(st.integers(1, 1000), st.integers(1, 16))
def test_micro_batches_are_equal(samples: int, most: int):
    number = largest_part(samples, most)
    assert samples % number == 0
    assert 1 <= number <= most


def two(rank: int = 0) -> Group:
    """A member of a group of two that is never joined: refusals come before anything is sent."""
    group = alone()
    group.world = World(rank=rank, size=2)
    return group


@pytest.mark.parametrize(
    ("layer", "says"),
    [(nn.BatchNorm1d(5), "would see micro-batches"), (nn.Dropout(0.1), "Set its p to 0")],
)
def test_layers_that_would_differ_are_refused(layer: nn.Module, says: str):
    with pytest.raises(PlanError, match=says):
        Pipeline(nn.Sequential(nn.Linear(5, 5), layer), two(), loss=cross_entropy)
    Pipeline(nn.Sequential(nn.Linear(5, 5), layer), alone(), loss=cross_entropy, micro_batches=1)
    Pipeline(nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.0)), two(), loss=cross_entropy)


def test_shared_weights_and_too_few_layers_are_refused():
    layer = nn.Linear(5, 5)
    with pytest.raises(PlanError, match="share a parameter"):
        Pipeline(nn.Sequential(layer, nn.Tanh(), layer), two(), loss=cross_entropy)
    with pytest.raises(PlanError, match="1 layers do not make 2 stages"):
        Pipeline(nn.Sequential(layer), two(), loss=cross_entropy)
    with pytest.raises(PlanError, match="0 micro-batches"):
        Pipeline(nn.Sequential(layer), alone(), loss=cross_entropy, micro_batches=0)


def test_the_loop_of_the_page_runs():
    page = Path(__file__).parents[2] / "docs" / "ideas" / "two-ways.md"
    snippet = re.search(r"<!-- run: pipeline -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert snippet
    names: dict[str, Any] = {}
    exec(snippet[1], names)
    assert names["loss"].isfinite()
