"""A batch that follows the noise scale: the same run on any number of replicas."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.optim import AdamW

from lockstep import models
from lockstep.console import Progress
from lockstep.engine.group import Group
from lockstep.engine.job import Job
from lockstep.engine.metrics import Meter
from lockstep.engine.recipe import Recipe
from lockstep.engine.replica import Replica
from lockstep.engine.step import TrainingStep
from lockstep.errors import PlanError, RecipeError
from lockstep.scaling.noise import moments
from lockstep.world import World
from replicas import in_double, small, train

# 20 full batches and a smaller one in an epoch.
SAMPLES = 163


def growing(**changes: Any) -> Recipe:
    """Five epochs of 21 batches, of which a step may take four."""
    return small(SAMPLES, **{"global_batch": 8, "epochs": 5, "grow_to": 32, **changes})


def batches(out: Path) -> list[int]:
    """Samples of the steps that were logged."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line["global_batch"] for line in lines if line["kind"] == "train"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": AdamW, "learning_rate": 3e-3, "clip": 1.0},
        {"grow_from": 32},
    ],
    ids=str,
)
def test_1_2_and_4_replicas_end_in_the_same_bits(tmp_path: Path, changes: dict):
    runs = [
        train(growing(**changes), tmp_path / str(n), n, exact=True, checkpoint_every=25)
        for n in (1, 2, 4)
    ]
    assert len({run["weights_sha256"] for run in runs}) == 1
    assert max(batches(tmp_path / "1")) > 8
    assert len({(run["steps"], run["epochs"]) for run in runs}) == 1
    # Fewer steps than planned, over more data.
    assert runs[0]["steps"] < 5 * 21
    assert runs[0]["epochs"] >= 5


def test_resumed_elsewhere_it_ends_in_the_same_bits(tmp_path: Path):
    whole = train(growing(), tmp_path / "whole", 2, exact=True)
    for steps in (3, 40, 58):
        out = tmp_path / str(steps)
        train(growing(), out, 1, exact=True, checkpoint_every=steps, max_steps=steps)
        parts = train(growing(), out, 4, exact=True, resume=True)
        assert parts["weights_sha256"] == whole["weights_sha256"]
        assert parts["steps"] == whole["steps"]


def test_data_that_are_read_ahead_grow_alike(tmp_path: Path):
    # In fast mode all rounds of a step are one request: the loader is as far ahead as can be.
    recipe = growing(shards=2, epochs=12, grow_to=64, model=partial(models.mlp, (64, 16, 10), 0.1))
    runs = [
        train(recipe, tmp_path / str(workers), resident=resident, workers=workers, exact=exact)
        for exact in (False, True)
        for resident, workers in ((True, 2 + exact), (False, 8 - exact))
    ]
    assert len({run["weights_sha256"] for run in runs[:2]}) == 1
    assert len({run["weights_sha256"] for run in runs[2:]}) == 1
    assert max(batches(tmp_path / "8")) == 64


def test_fast_mode_gives_the_same_up_to_rounding(tmp_path: Path):
    recipe = in_double(growing(), SAMPLES)
    ways: list[dict[str, Any]] = [
        {"exact": True},
        {},
        {"micro_batch": 2},
        {"replicas": 2},
        {"replicas": 4},
    ]
    found = []
    for number, way in enumerate(ways):
        train(recipe, out := tmp_path / str(number), **way)
        found.append(load_file(out / "weights.safetensors"))
    assert max(batches(tmp_path / "1")) > 8
    for other in found[1:]:
        for name, tensor in found[0].items():
            torch.testing.assert_close(other[name], tensor, rtol=1e-6, atol=1e-9)


def test_a_bound_of_one_batch_changes_nothing(tmp_path: Path):
    plain = train(growing(grow_to=None), tmp_path / "plain", exact=True)
    bound = train(growing(grow_to=8), tmp_path / "bound", exact=True)
    assert plain["weights_sha256"] == bound["weights_sha256"]
    assert plain["steps"] == bound["steps"] == 5 * 21


def test_what_a_look_tells_is_what_the_gradients_have(tmp_path: Path):
    model = partial(models.mlp, (64, 10), 0.0)
    recipe = in_double(growing(model=model, augment=(), grow_from=16), SAMPLES)
    for options in ({}, {"micro_batch": 2}, {"exact": True}):
        job = Job(recipe=recipe, out=tmp_path / "run", **options)
        replica = Replica(job, Group(World()), Progress())
        step, arrivals = next(replica.steps(0))
        assert step.stride.looks
        assert step.stride.rounds == 2
        order = replica.order.epoch(0)[: step.samples]
        shards = order.view(2, 4, 2)[0]
        small_sqr = sum(length(replica, shard) for shard in shards) / 4
        expected = moments(small_sqr, length(replica, order), 2, 16)
        TrainingStep(replica, Meter(job.plan, replica.group))(step, arrivals)
        assert replica.lengths.told() == pytest.approx(expected, rel=1e-9)
    torch.use_deterministic_algorithms(False)


def length(replica: Replica, samples: torch.Tensor) -> float:
    """Squared length of the mean gradient over some samples."""
    inputs, targets = replica.data.train.take(samples)
    assert replica.data.prepare is not None
    outputs = replica.module(replica.data.prepare(inputs))
    loss = torch.nn.functional.cross_entropy(outputs, targets)
    gradients = torch.autograd.grad(loss, replica.update.parameters)
    return sum(g.square().sum().item() for g in gradients)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"grow_to": 24}, "grow_to is 24; it must be the global batch of 8 doubled.*16, 32"),
        ({"grow_to": 4}, "grow_to is 4"),
        ({"grow_to": 2.5}, "grow_to is 2.5"),
        ({"grow_to": 8 << 11}, "up to 10 times"),
        ({"grow_from": 16, "grow_to": None}, "grow_from is given without grow_to"),
        ({"grow_from": 64}, "grow_from is 64, more than grow_to"),
        ({"shards": 1}, "set shards to 2 or more"),
        ({"batch_norm": "sync"}, "needs 'shard'"),
    ],
)
def test_bounds_that_cannot_work_are_refused(changes: dict, text: str):
    with pytest.raises(RecipeError, match=text):
        growing(**changes)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"noise": True}, "Leave out --noise"), ({"workers": 9}, "use 8 at most")],
)
def test_options_that_cannot_be_with_it_are_refused(tmp_path: Path, options: dict, text: str):
    with pytest.raises(PlanError, match=text):
        Job(recipe=growing(), out=tmp_path, **options)
