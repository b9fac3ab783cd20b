"""Buffers that replicas should share: named if they drift apart, quiet if they do not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lockstep.engine.exchange.buffer_drift import buffer_drift
from lockstep.engine.group import Group
from replicas import on_replicas


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def test_equal_buffers_are_in_step():
    def work(group: Group) -> dict[str, float]:
        net = network()
        net(torch.ones(5, 4) * torch.arange(5.0)[:, None])
        return buffer_drift(net)

    assert on_replicas(2, work) == [{}, {}]


def test_running_statistics_of_replicas_with_other_data_are_named():
    def work(group: Group) -> dict[str, float]:
        net = network()
        net(torch.ones(5, 4) * (torch.arange(5.0)[:, None] + group.world.rank))
        return buffer_drift(net)

    answers = on_replicas(2, work)
    assert answers[0] == answers[1]
    # The variance of shifted data is the same, but for rounding; the count of batches is equal.
    assert "1.running_mean" in answers[0]
    assert answers[0]["1.running_mean"] > 0.1
    assert "1.num_batches_tracked" not in answers[0]


def test_one_buffer_of_one_replica_is_found_with_its_size():
    def work(group: Group) -> dict[str, float]:
        net = network()
        net.register_buffer("average", torch.tensor([4.0, 0.0, -2.0]))
        net.register_buffer("nothing", torch.empty(0))
        if group.world.rank == 2:
            net.average[0] = 5.0
        return buffer_drift(net)

    assert on_replicas(4, work) == [{"average": pytest.approx(0.2)}] * 4


def test_a_process_alone_has_nobody_to_differ_from():
    assert buffer_drift(network()) == {}
