"""Fast mode computes the same training: in double precision only rounding is left.

Bound: 2.2e-16 per operation, amplified over some twenty steps of a small network by less than 1e5;
a different sample order, dropout mask, batch statistic or weight would show at 1e-3.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.loop import train as loop
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from replicas import in_double, on_replicas, small, train

ROUNDING = 1e-10


def weights(recipe: Recipe, out: Path, replicas: int = 1, **options) -> dict[str, torch.Tensor]:
    train(recipe, out, replicas, **options)
    return load_file(out / "weights.safetensors")


def gap(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    assert first.keys() == second.keys()
    return max((first[n].double() - second[n].double()).abs().max().item() for n in first)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return weights(in_double(small()), tmp_path_factory.mktemp("reference") / "run")


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_replicas_reach_the_weights_of_one(tmp_path: Path, reference, way: str, replicas: int):
    assert gap(reference, weights(in_double(small()), tmp_path / "run", replicas)) < ROUNDING


def test_exact_mode_is_the_same_training(tmp_path: Path, reference):
    assert gap(reference, weights(in_double(small()), tmp_path / "run", 2, exact=True)) < ROUNDING


@pytest.mark.parametrize(("replicas", "micro_batch"), [(1, 8), (1, 16), (2, 8)])
def test_accumulation_does_not_change_the_training(
    tmp_path: Path, reference, replicas: int, micro_batch: int
):
    recipe = in_double(small())
    other = weights(recipe, tmp_path / "run", replicas, micro_batch=micro_batch)
    assert gap(reference, other) < ROUNDING


def test_another_order_would_show(tmp_path: Path, reference):
    assert gap(reference, weights(in_double(small(seed=1)), tmp_path / "run")) > 1e-3


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_synchronised_batch_norm_is_that_of_the_global_batch(tmp_path: Path, replicas: int):
    # One shard on one replica is torch's own batch norm over the global batch.
    plain = small(70, batch_norm="shard", shards=1, model=_no_dropout)
    synced = small(70, batch_norm="sync", model=_no_dropout)
    one = weights(in_double(plain, 70), tmp_path / "one")
    many = weights(in_double(synced, 70), tmp_path / "many", replicas)
    assert gap(one, many) < ROUNDING


def _no_dropout() -> nn.Module:
    from lockstep.models import wideresnet

    return wideresnet(10, 1, channels=1)


@pytest.mark.usefixtures("gloo")
@pytest.mark.parametrize("micro_batch", [None, 8])
def test_gradients_are_exchanged_once_per_step(tmp_path: Path, micro_batch: int | None):
    def count(group: Group) -> list[int]:
        """Calls of the hook on the first bucket in each step."""
        seen: list[int] = []
        real = torch.nn.parallel.DistributedDataParallel

        class Counting(real):  # type: ignore[misc,valid-type]
            def __init__(self, *args, **kwargs) -> None:
                super().__init__(*args, **kwargs)
                from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

                def hook(state: object, bucket: torch.distributed.GradBucket):
                    if bucket.index() == 0:
                        seen.append(1)
                    return allreduce_hook(None, bucket)

                hook.__annotations__.clear()
                self.register_comm_hook(None, hook)

        import lockstep.engine.exchange.connect as exchange_module
        import lockstep.engine.exchange.reduce as reduce_module

        exchange_module.DistributedDataParallel = Counting
        reduce_module.DistributedDataParallel = real
        recipe = small(64, epochs=2)
        out = tmp_path / "run"
        job = Job(recipe=recipe, out=out, replicas=2, micro_batch=micro_batch, checkpoint_every=0)
        loop(job, group, Progress())
        return len(seen)

    assert on_replicas(2, count) == [4, 4]
