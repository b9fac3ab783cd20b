"""Compressions, and hooks that run beside backward and hand their errors on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.console import Progress
from lockstep.engine.exchange.compression.bf16 import bf16
from lockstep.engine.exchange.hooks import OverlappedExchange, attach
from lockstep.engine.group import Group
from lockstep.engine.loop import train as loop
from lockstep.engine.recipe.job import Job
from lockstep.errors import PlanError
from replicas import on_replicas, small, train


class Two(nn.Module):
    """Two layers, and a bell that rings when backward comes to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.bell = threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        hidden.register_hook(lambda gradient: self.bell.set())
        return self.last(hidden)


def test_backward_goes_on_while_a_bucket_travels():
    def work(group: Group) -> list[bool]:
        module = Two()
        heard: list[bool] = []

        def exchange(parameters, buffer, group) -> None:
            # Backward rings only if it does not wait for this.
            if len(parameters) < 4:
                heard.append(module.bell.wait(20))

        model = DistributedDataParallel(module, bucket_cap_mb=1e-5)
        attach(model, OverlappedExchange(exchange, 60.0))
        for _ in range(2):  # the first step has one bucket
            module.bell.clear()
            model(torch.ones(2, 4)).sum().backward()
        return heard

    for heard in on_replicas(2, work):
        assert len(heard) > 1
        assert all(heard)


def test_an_error_in_the_exchange_stops_backward():
    def work(group: Group) -> str:
        def exchange(parameters, buffer, group) -> None:
            raise OSError("the cable is out")

        model = DistributedDataParallel(nn.Linear(2, 2))
        attach(model, OverlappedExchange(exchange, 60.0))
        try:
            model(torch.ones(1, 2)).sum().backward()
        except RuntimeError as error:
            return str(error)
        return "nothing"

    assert all("the cable is out" in said for said in on_replicas(2, work))


def test_bf16_gives_the_mean_of_the_replicas():
    def work(group: Group) -> list[float]:
        buffer = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]) * (1 + 2 * group.world.rank)
        bf16([], buffer, None)
        return buffer.tolist()

    assert on_replicas(2, work) == [[2.0, 4.0, 6.0, 8.0, 10.0]] * 2


@pytest.mark.parametrize(("wire", "hooks"), [("fp32", 0), ("bf16", 1), ("powersgd", 1)])
@pytest.mark.usefixtures("gloo")
def test_float32_is_left_to_ddp_itself(tmp_path: Path, wire: str, hooks: int):
    def work(group: Group) -> int:
        seen = []
        register = DistributedDataParallel.register_comm_hook

        def noting(self, state, hook) -> None:
            seen.append(hook)
            register(self, state, hook)

        DistributedDataParallel.register_comm_hook = noting  # type: ignore[method-assign]
        recipe = small(40, epochs=1)
        job = Job(recipe=recipe, out=tmp_path / "run", replicas=2, wire=wire, checkpoint_every=0)
        loop(job, group, Progress())
        return len(seen)

    assert on_replicas(2, work) == [hooks] * 2


@pytest.mark.parametrize("wire", ["bf16", "powersgd"])
def test_exact_mode_refuses_wires_that_round(tmp_path: Path, wire: str):
    with pytest.raises(PlanError, match=f"--wire {wire} does not work with --exact"):
        Job(recipe=small(), out=tmp_path, exact=True, wire=wire)


def test_a_wire_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path):
    with pytest.raises(PlanError, match="fp32, bf16, powersgd"):
        Job(recipe=small(), out=tmp_path, wire="fp8")


@pytest.mark.parametrize("size", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bucket_of_no_size_is_refused(tmp_path: Path, size: float):
    with pytest.raises(PlanError, match="--bucket-mb"):
        Job(recipe=small(), out=tmp_path, bucket_mb=size)


def test_a_note_says_that_a_wire_does_nothing_on_one_replica(tmp_path: Path, capfd):
    run = train(small(40, epochs=1), tmp_path / "run", wire="bf16")
    assert "--wire bf16 has no effect on one replica" in capfd.readouterr().err
    assert run["exchange"] is None
    train(small(40, epochs=1), tmp_path / "plain")
    assert "--wire" not in capfd.readouterr().err
