"""Functions on 1 and 2 real replicas: the right ones pass, and the others say where they part."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import lockstep
from lockstep.errors import UsageError
from lockstep.testing import NotSame, same_on

X = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))


def train(
    rate: float = 0.1, *, divides: bool = True, scaled: bool = False, noisy: bool = False
) -> nn.Module:
    """Train with plain DDP, without a loader, on rows that the ranks share."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate * (size if scaled else 1))
    for batch in X.split(16):
        rows = batch[rank::size] if divides else batch + rank
        optimizer.zero_grad()
        (model(rows) + noisy * torch.randn(len(rows), 2)).square().mean().backward()
        optimizer.step()
    return model


def test_a_function_that_divides_its_batch_is_the_same():
    same_on(1, 2)(train)


def test_the_arguments_of_a_function_are_passed_on():
    same_on(1, 2)(train, 0.2, divides=True)


def test_a_function_whose_ranks_take_other_samples_differs():
    with pytest.raises(NotSame) as failure:
        same_on(1, 2)(train, divides=False)
    said = str(failure.value)
    assert "train(): 2 replicas do not train as 1 does. They differ after step 1" in said
    assert "Linear.weight" in said
    assert "where rounding explains" in said
    assert failure.value.comparison is not None
    assert failure.value.comparison.first is not None
    difference = failure.value.comparison.first.difference
    bound = failure.value.comparison.first.bound
    assert difference is not None
    assert bound is not None
    # A bug is orders of magnitude above rounding, and the bound is one of rounding.
    assert 1000 * bound < difference
    assert 0 < bound < 1e-5


def test_a_learning_rate_that_depends_on_the_replicas_is_named():
    with pytest.raises(NotSame, match=r"learning rate of step 1 is 0\.2, on 1 replica 0\.1"):
        same_on(1, 2)(train, scaled=True)


def test_equal_bits_can_be_demanded_of_plain_ddp():
    with pytest.raises(NotSame, match="where not a bit may differ"):
        same_on(1, 2, exact=True)(train)


def loop(*, exact: bool = True, bug: bool = False) -> dict[str, object]:
    with lockstep.Loop(global_batch=16, exact=exact) as own:
        model = own.model(nn.Linear(6, 2))
        optimizer = own.optimizer(torch.optim.Adam(model.parameters(), lr=1e-2))
        batches = own.batches(list(X))
        for _ in own.epochs(1):
            for batch in batches:
                if bug:
                    optimizer.param_groups[0]["lr"] = 1e-2 + 1e-9 * own.replicas
                own.step(batch, lambda x: (model(x).square().sum(), len(x)), optimizer)
    return {"model": model, "loss": own.logged["loss"]}


@pytest.mark.parametrize("exact", [True, False])
def test_a_function_with_a_loop_is_the_same(exact: bool, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    same_on(1, 2)(loop, exact=exact)
    assert list(tmp_path.iterdir()) == []


def test_a_function_may_open_one_loop_after_another():
    same_on(1, 2)(lambda: [loop(), loop()])


def test_the_exact_mode_of_a_loop_demands_equal_bits():
    # A change of the rate in the ninth digit: rounding would explain it.
    with pytest.raises(NotSame, match="where not a bit may differ"):
        same_on(1, 2)(loop, bug=True)


@same_on(1, 2)
def test_a_decorated_test_is_run_on_replicas():
    return train()


@same_on(1, 2)
def test_a_decorated_test_may_use_fixtures(tmp_path: Path):
    model = train()
    (tmp_path / f"{dist.get_rank()}.txt").write_text("done")
    return {"weights": model, "numbers": [1, 2.5, (True,)]}


TEST = """
import torch.distributed as dist
from torch import nn

def train():
    dist.init_process_group("gloo")
    return nn.Linear(2, 1).requires_grad_(False).weight.fill_(WEIGHT)

def test_it(same_on):
    same_on(1, 2)(train)
"""


@pytest.mark.parametrize(("weight", "code"), [("2.0", 0), ("dist.get_world_size()", 1)])
def test_the_plugin_offers_a_fixture(weight: str, code: int, tmp_path: Path):
    (tmp_path / "test_it.py").write_text(TEST.replace("WEIGHT", weight))
    # As the entry point would load it, whether lockstep is installed or not.
    (tmp_path / "conftest.py").write_text("from lockstep.testing.plugin import same_on as same_on")
    command = [sys.executable, "-m", "pytest", "-q", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("2 replicas do not train as 1 does" in done.stdout) == bool(code)
    assert "functions.py" not in done.stdout  # the traceback ends in the test


def crashes() -> nn.Module:
    model = train()
    if dist.get_rank() == 1:
        raise KeyError("labels")
    dist.barrier()
    return model


def test_the_error_of_a_replica_is_shown():
    with pytest.raises(NotSame) as failure:
        same_on(1, 2)(crashes)
    said = str(failure.value)
    assert said.startswith(
        "crashes() fails on 2 replicas: Replica 1 failed with KeyError: 'labels'"
    )
    assert 'raise KeyError("labels")' in said


def hangs() -> nn.Module:
    model = train()
    if dist.get_rank() == 1:
        time.sleep(600)
    dist.barrier()
    return model


def test_the_stack_of_a_replica_that_hangs_is_shown():
    with pytest.raises(NotSame) as failure:
        same_on(1, 2, timeout=3.0)(hangs)
    said = str(failure.value)
    assert "hangs() hangs on 2 replicas: no step in 3 seconds." in said
    assert "in hangs" in said
    assert "rank 0:" in said or "rank 1:" in said


def returns_a_rank() -> float:
    train()
    return float(dist.get_rank())


def test_the_replicas_must_return_the_same():
    with pytest.raises(NotSame, match="in what the other ranks return"):
        same_on(1, 2)(returns_a_rank)


def alone() -> float:
    return 1.0


def test_replicas_that_never_meet_are_refused():
    with pytest.raises(NotSame, match="its 2 ranks never join one process group"):
        same_on(1, 2)(alone)


@pytest.mark.parametrize("value", [None, "text", object()])
def test_a_function_must_return_something_to_compare(value: object):
    with pytest.raises(UsageError, match=r"Return the model, its state_dict\(\), tensors or"):
        same_on(1, 2)(lambda: value)
