"""A batch that follows the noise scale: the same run on any number of replicas."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.optim import AdamW

from lockstep import models
from lockstep.console import Progress
from lockstep.data import Arrival, Request
from lockstep.engine.group import Group
from lockstep.engine.recipe.job import Job
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.replica import Replica
from lockstep.engine.sampler import Step
from lockstep.engine.step.metrics import Meter
from lockstep.engine.step.paths import StepPaths
from lockstep.engine.step.training_step import Taken, TrainingStep
from lockstep.errors import PlanError, RecipeError
from lockstep.scaling.batch.growth import LAG, LEAST_PERIOD
from lockstep.scaling.noise import Moments, moments
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
        {"grow_from": 32, "epochs": 6},
    ],
    ids=str,
)
def test_any_number_of_replicas_ends_in_the_same_bits(tmp_path: Path, changes: dict, sizes):
    runs = [
        train(growing(**changes), tmp_path / str(n), n, exact=True, checkpoint_every=25)
        for n in sizes
    ]
    assert len({run["weights_sha256"] for run in runs}) == 1
    assert max(batches(tmp_path / "1")) > 8
    assert len({(run["steps"], run["epochs"]) for run in runs}) == 1
    # Fewer steps than planned, over more data.
    epochs = growing(**changes).epochs
    assert runs[0]["steps"] < epochs * 21
    assert runs[0]["epochs"] >= epochs


@pytest.mark.parametrize(
    ("steps", "replicas"),
    [(40, 2), *(pytest.param(steps, 4, marks=pytest.mark.slow) for steps in (3, 40, 58))],
)
def test_resumed_elsewhere_it_ends_in_the_same_bits(tmp_path: Path, steps: int, replicas: int):
    whole = train(growing(), tmp_path / "whole", 2, exact=True)
    out = tmp_path / str(steps)
    train(growing(), out, 1, exact=True, checkpoint_every=steps, max_steps=steps)
    parts = train(growing(), out, replicas, exact=True, resume=True)
    assert parts["weights_sha256"] == whole["weights_sha256"]
    assert parts["steps"] == whole["steps"]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_bound_of_one_batch_changes_nothing(tmp_path: Path):
    plain = train(growing(grow_to=None), tmp_path / "plain", exact=True)
    bound = train(growing(grow_to=8), tmp_path / "bound", exact=True)
    assert plain["weights_sha256"] == bound["weights_sha256"]
    assert plain["steps"] == bound["steps"] == 5 * 21


def looking(recipe: Recipe, folder: Path, **options: Any) -> tuple[Replica, Step, list[Arrival]]:
    """A replica, and a step of several batches that looks at its gradients."""
    job = Job(recipe=recipe, out=folder / "run", **options)
    replica = Replica(job, Group(World()), Progress())
    assert replica.shard_norms is not None
    replica.shard_norms.growth.measured += [Moments(0.0, 1.0)] * 9
    steps = replica.steps(LAG * LEAST_PERIOD)
    return replica, *next((s, a) for s, a in steps if s.stride.looks and s.stride.rounds > 1)


def take(replica: Replica, step: Step, arrivals: list[Arrival]) -> Moments:
    assert replica.shard_norms is not None
    TrainingStep(replica, meter_of(replica))(step, arrivals)
    return replica.shard_norms.moments()


def meter_of(replica: Replica) -> Meter:
    return Meter(replica.feed.job.plan, replica.model.group)


def test_a_look_measures_the_moments_of_the_gradients(tmp_path: Path):
    model = partial(models.mlp, (64, 10), 0.0)
    recipe = in_double(growing(model=model, augment=(), grow_to=16), SAMPLES)
    for options in ({}, {"micro_batch": 2}, {"exact": True}):
        replica, step, arrivals = looking(recipe, tmp_path, **options)
        order = replica.feed.order.epoch(step.epoch)[step.batch * 8 :][: step.samples]
        shards = order.view(2, 4, 2)[0]
        small_sqr = sum(length(replica, shard) for shard in shards) / 4
        expected = moments(small_sqr, length(replica, order), 2, 16)
        assert take(replica, step, arrivals) == pytest.approx(expected, rel=1e-9)
    torch.use_deterministic_algorithms(False)


def test_with_adam_the_noise_scale_does_not_depend_on_the_size_of_the_loss(tmp_path: Path):
    adam = partial(AdamW, eps=1e-30)
    recipe = in_double(growing(optimizer=adam, learning_rate=1e-3, grow_to=16), SAMPLES)

    def scaled_loss(outputs: torch.Tensor, targets: torch.Tensor, scale: float) -> torch.Tensor:
        return scale * torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    # From the first step on, before Adam has any state.
    found = []
    for scale in (1.0, 1000.0):
        changed = replace(recipe, loss=partial(scaled_loss, scale=scale))
        found.append(take(*looking(changed, tmp_path)))
    assert found[0].gradient_sqr == pytest.approx(found[1].gradient_sqr, rel=1e-6)
    assert found[0].trace == pytest.approx(found[1].trace, rel=1e-6)


class Odd(torch.nn.Module):
    """Parameters of several types, one of them unused by autocast or norms of one type."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(20, 8, sparse=sparse)
        self.wide = torch.nn.Linear(8, 10).double()
        self.turn = torch.nn.Parameter(torch.ones(8, dtype=torch.complex64))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        inner = self.rows((images.flatten(1).abs() % 20).long()).mean(1)
        return self.wide((inner * self.turn).real.double()).float()


def test_models_of_several_types_are_looked_at_and_sparse_ones_refused(tmp_path: Path):
    sgd = partial(torch.optim.SGD, foreach=False)
    recipe = growing(model=Odd, augment=(), channels_last=False, optimizer=sgd, grow_to=16)
    assert take(*looking(recipe, tmp_path)).trace > 0
    with pytest.raises(RecipeError, match=r"rows \(Embedding\) has sparse gradients"):
        take(*looking(replace(recipe, model=partial(Odd, sparse=True)), tmp_path))


def test_the_contents_of_a_checkpoint_do_not_change_while_it_is_written(tmp_path: Path):
    replica, _, _ = looking(growing(), tmp_path)
    saved = replica.snapshot().facts["growth"]["measured"]
    assert replica.shard_norms is not None
    replica.shard_norms.growth.measured.append(Moments(1.0, 1.0))
    assert len(saved) == 9


def test_steps_that_were_put_off_are_taken_before_steps_of_another_length(tmp_path: Path):
    done: list[str] = []

    class Putting:
        settled = False

        def __init__(self) -> None:
            self.queue: list[int] = []

        def __call__(self, step: Step, arrivals: list[Arrival]) -> Taken:
            self.queue.append(step.number)
            return Taken(1, 0.0)

        def flush(self) -> None:
            done.extend(map(str, self.queue))
            self.queue.clear()

    replica, _, _ = looking(growing(), tmp_path)
    job, group = replica.feed.job, replica.model.group
    speeds = StepPaths(job, group, replica, meter_of(replica), Progress())
    speeds._begin = Putting
    plain = [(s, a) for s, a in replica.steps(LAG * LEAST_PERIOD) if not s.stride.looks]
    for step, arrivals in plain:
        if step.samples == step.stride.rounds * 8:
            speeds(step, arrivals)
    speeds.flush()
    assert {s.stride.rounds for s, _ in plain} == {1, 2, 4}
    assert done == sorted(done, key=int)


def length(replica: Replica, samples: torch.Tensor) -> float:
    """Squared length of the mean gradient over some samples."""
    inputs, targets = replica.feed.read(Arrival(Request(0, samples)))
    outputs = replica.model.module(inputs)
    loss = torch.nn.functional.cross_entropy(outputs, targets)
    gradients = torch.autograd.grad(loss, replica.update.parameters)
    return sum(g.square().sum().item() for g in gradients)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"grow_to": 24}, "grow_to is 24; it must be the global batch of 8 doubled.*16, 32"),
        ({"grow_to": 4}, "grow_to is 4"),
        ({"grow_to": 2.5}, "grow_to is 2.5"),
        ({"grow_to": 32.0}, "grow_to is 32.0"),
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
    [({"noise": True}, "Leave out --noise"), ({"workers": 9}, "use up to 8 workers")],
)
def test_options_that_cannot_be_with_it_are_refused(tmp_path: Path, options: dict, text: str):
    with pytest.raises(PlanError, match=text):
        Job(recipe=growing(), out=tmp_path, **options)
