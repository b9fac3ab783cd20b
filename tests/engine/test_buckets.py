"""What is noted of DDP's buckets, on two real replicas."""

from __future__ import annotations

import gc
from itertools import pairwise

import torch
from torch import nn

from lockstep.engine.exchange.buckets import Buckets
from lockstep.engine.group import Group
from replicas import on_replicas, world

NAMES = ["last.weight", "last.bias", "first.weight", "first.bias"]


class Network(nn.Module):
    """Its last layer is written first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(600, 3)
        self.first = nn.Linear(600, 600)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(inputs)))


def steps(group: Group, cap_mb: float) -> list[dict]:
    torch.manual_seed(group.world.rank)
    watched = Buckets(Network(), group, cap_mb=cap_mb, keep=["last.bias"])
    found = []
    for _ in range(3):
        watched.model.zero_grad()
        inputs = torch.randn(4, 600)
        notes = watched.step(lambda model, inputs=inputs: model(inputs).square().mean())
        local = watched.local["last.bias"].tolist()
        reduced = watched.model.module.last.bias.grad.tolist()
        found.append(notes | {"local": group.objects(local), "reduced": reduced})
    del watched
    gc.collect()
    return found


@world(2)
def test_all_is_in_one_bucket_at_first_and_then_goes_by_the_order_of_the_gradients(group):
    first, *later = steps(group, cap_mb=0.001)
    assert [one["parameters"] for one in first["buckets"]] == [NAMES]
    for notes in later:
        came = [one["name"] for one in notes["ready"]]
        assert [name for one in notes["buckets"] for name in one["parameters"]] == came
        assert came[:2] == ["last.bias", "last.weight"]
        assert len(notes["buckets"]) > 1
        assert [one["number"] for one in notes["buckets"]] == list(range(len(notes["buckets"])))
    for notes in (first, *later):
        size = 4 * sum(p.numel() for p in Network().parameters())
        assert sum(one["bytes"] for one in notes["buckets"]) == size


@world(2)
def test_moments_come_in_the_order_in_which_things_can_happen(group):
    for notes in steps(group, cap_mb=0.001):
        at = {one["name"]: one["at"] for one in notes["ready"]}
        assert all(a["at"] <= b["at"] for a, b in pairwise(notes["ready"]))
        assert [layer["name"] for layer in notes["layers"]] == ["last", "first"]
        for layer in notes["layers"]:
            assert 0 <= notes["start"] <= layer["start"] <= layer["end"] <= notes["end"]
        for one in notes["buckets"]:
            # A bucket leaves when its last gradient is there, and backward waits for all.
            assert max(at[name] for name in one["parameters"]) <= one["start"] + 0.001
            assert one["start"] <= one["end"] <= notes["end"]


def test_gradients_are_kept_from_before_the_exchange_and_their_mean_comes_out():
    by_rank = on_replicas(2, lambda group: steps(group, cap_mb=25.0))
    for own, other in zip(*by_rank, strict=True):
        first, second = own["local"]
        assert first != second
        assert own["reduced"] == other["reduced"]
        mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
        # Both halves are rounded to float32 before they are added.
        assert torch.allclose(torch.tensor(own["reduced"]), torch.tensor(mean), rtol=1e-6)
