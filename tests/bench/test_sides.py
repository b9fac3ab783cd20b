"""Every side really trains, on the same model and the same batch."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

from lockstep.bench.assignment import Assignment
from lockstep.bench.entries import SIDES, default_entries, parse_entries
from lockstep.bench.turns import Enough, Few
from lockstep.errors import UsageError
from lockstep.processes.ports import free_port
from lockstep.processes.replicas import run_replicas
from lockstep.world import World
from tiny import TINY

STEPS = 12


@pytest.fixture(scope="module", autouse=True)
def _peers_are_imported_once() -> None:
    """Here, before the forks: importing them takes seconds, and their warnings are theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in {name for side in SIDES.values() for name in side.needs}:
            if find_spec(name):
                import_module(name)


def trained(name: str, replicas: int = 1, steps: int = STEPS, **options: Any) -> dict[str, Any]:
    """What a few steps of a side have made of the model."""
    port, samples = free_port(), TINY.samples()

    def replica(rank: int, store: str) -> dict[str, Any]:
        warnings.simplefilter("ignore")
        pace = Few(steps)
        assignment = Assignment(
            speed="eager",
            work=TINY,
            samples=samples,
            world=World(rank=rank, size=replicas, local_rank=rank),
            pace=pace,
            port=port,
            folder=Path(store).parent,
            **options,
        )
        try:
            SIDES[name].run(assignment)
        except Enough:
            assert pace.model is not None
            return {"samples": pace.samples, "state": state(pace.model)}
        raise AssertionError("the side has ended by itself")

    return run_replicas(replicas, replica)


def state(model: torch.nn.Module) -> list[Any]:
    return [p.detach().tolist() for p in model.parameters()]


def loss_of(weights: list[Any]) -> float:
    model, samples = TINY.model(), TINY.samples()
    with torch.no_grad():
        for p, values in zip(model.parameters(), weights, strict=True):
            p.copy_(torch.tensor(values))
        return float(cross_entropy(model(samples.inputs), samples.targets))


def test_the_files_in_the_folder_are_the_sides_in_their_order():
    assert [(side.name, side.order) for side in SIDES.values()] == [
        ("lockstep", 1),
        ("lockstep-exact", 2),
        ("handwritten", 3),
        ("accelerate", 4),
        ("fabric", 5),
        ("trainer", 6),
        ("workshop", 7),
        ("tuned", 8),
    ]


BOTH = [(name, n) for name, s in SIDES.items() for n in (1, 2) if n == 1 or not s.one_replica]


@pytest.mark.parametrize(("name", "replicas"), BOTH)
def test_a_side_trains_the_model_of_the_work_on_its_batch(name: str, replicas: int):
    if not SIDES[name].installed:
        pytest.skip(f"{SIDES[name].needs[0]} is not installed")
    result = trained(name, replicas)
    assert result["samples"] == STEPS * TINY.batch
    assert [torch.tensor(w).shape for w in result["state"]] == [
        p.shape for p in TINY.model().parameters()
    ]
    # Untrained, the loss over four classes is about log 4 = 1.39; the classes differ clearly.
    assert loss_of(result["state"]) < 1.2


@pytest.mark.parametrize("name", ["lockstep", "accelerate", "fabric", "trainer", "tuned"])
def test_sides_that_can_choose_train_in_bf16(name: str):
    if not SIDES[name].installed:
        pytest.skip(f"{SIDES[name].needs[0]} is not installed")
    result = trained(name, precision="bf16")
    assert loss_of(result["state"]) < 1.2


def reference(replicas: int, steps: int) -> list[Any]:
    """One process that sees the batches of all replicas at once."""
    samples = TINY.samples()
    loaders = [
        DataLoader(
            samples,
            batch_size=TINY.batch,
            sampler=DistributedSampler(samples, num_replicas=replicas, rank=rank, seed=0),
        )
        for rank in range(replicas)
    ]
    torch.manual_seed(0)
    model = TINY.model()
    optimizer = TINY.optimizer(model.parameters(), lr=TINY.learning_rate)
    for _, batches in zip(range(steps), zip(*loaders, strict=True), strict=False):
        inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return state(model)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_hand_written_loop_computes_what_one_process_would(replicas: int):
    steps = 3
    weights = trained("handwritten", replicas, steps)["state"]
    for ours, plain in zip(weights, reference(replicas, steps), strict=True):
        # Three steps of sums over 16 numbers below 1: a few roundings of float32.
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(plain), rtol=0, atol=1e-6)


def test_a_side_can_be_asked_for_on_another_number_of_replicas():
    entries = parse_entries("lockstep, lockstep@1", 4)
    assert [(e.name, e.replicas) for e in entries] == [("lockstep", 4), ("lockstep@1", 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lockstepp", "Known: lockstep, lockstep-exact, handwritten, accelerate"),
        ("lockstep@no", "as in lockstep@1"),
        ("lockstep@0", "as in lockstep@1"),
        ("tuned", "Write tuned@1"),
        ("lockstep,lockstep", "name each side once"),
    ],
)
def test_sides_that_cannot_be_are_refused(text: str, message: str):
    with pytest.raises(UsageError, match=message):
        parse_entries(text, 2)


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("lockstep.bench.side.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"accelerate is not installed.*lockstep\[bench\]"):
        parse_entries("accelerate", 1)
    entries, missing = default_entries(1, "cpu")
    assert [e.name for e in entries] == ["lockstep", "lockstep-exact", "handwritten", "workshop"]
    assert missing == ["accelerate", "fabric", "trainer"]


def test_sides_for_one_replica_stay_out_where_there_are_more():
    names = [e.name for e in default_entries(2, "cuda")[0]]
    assert "workshop" not in names
    assert "tuned" not in names
    assert "tuned" in [e.name for e in default_entries(1, "cuda")[0]]
