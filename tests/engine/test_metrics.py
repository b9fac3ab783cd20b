"""Losses and metrics: one value per item, every item counted exactly once."""

from __future__ import annotations

import math
import multiprocessing
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lockstep.data import Finish, Tensors, Watch, make_loader
from lockstep.engine.group import Group
from lockstep.engine.recipe.plan import Plan, make_plan
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.step.metrics import (
    Evaluation,
    Meter,
    Totals,
    accuracy,
    autocast,
    bits_per_byte,
    check_scores,
    cross_entropy,
    items_per_sample,
    scores_needed,
    squared_error,
)
from lockstep.errors import LockstepError, RecipeError
from lockstep.world import World
from replicas import on_replicas, small

ALONE = Group(World())


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels(*shape: int, classes: int = 5) -> Tensor:
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(1))


# Losses


@pytest.mark.parametrize("shape", [(6,), (6, 4), (2, 3, 2)], ids=str)
def test_cross_entropy_has_one_value_for_each_target(shape):
    outputs, targets = values(*shape, 5), labels(*shape)
    losses = cross_entropy(outputs, targets)
    assert losses.numel() == targets.numel()
    chances = outputs.double().softmax(-1).flatten(0, -2)
    expected = -chances[range(targets.numel()), targets.flatten()].log()
    # Single precision of numbers below 10.
    assert torch.allclose(losses.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("target", [5, -1])
def test_a_target_that_no_score_belongs_to_is_refused(target):
    with pytest.raises(
        RecipeError, match=rf"Target {target} is .* 5 scores, for the targets 0 to 4"
    ):
        cross_entropy(values(2, 5), torch.tensor([0, target]))


@pytest.mark.parametrize("classes", [6, ["a"] * 6], ids=["number", "names"])
def test_a_model_with_fewer_scores_than_classes_is_refused(classes):
    message = r"5 scores, the data have 6 classes.*resnet50\(classes=6\)"
    needed = scores_needed(small(loss=cross_entropy), classes)
    with pytest.raises(RecipeError, match=message):
        check_scores(values(2, 5), needed)


def test_a_model_with_enough_scores_or_another_loss_or_data_without_classes_pass():
    for classes in (5, ["a"] * 3):
        check_scores(values(2, 5), scores_needed(small(loss=cross_entropy), classes))
    assert scores_needed(small(loss=squared_error), 6) == 0
    assert scores_needed(small(loss=cross_entropy), None) == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
def test_smoothing_spreads_a_share_of_the_target_over_all_classes(smoothing: float):
    outputs, targets = values(6, 5).double(), labels(6)
    wanted = (1 - smoothing) * torch.nn.functional.one_hot(targets, 5).double() + smoothing / 5
    expected = -(wanted * outputs.log_softmax(-1)).sum(-1)
    losses = cross_entropy(outputs, targets, smoothing)
    assert torch.allclose(losses, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(6,), (6, 4)], ids=str)
def test_accuracy_is_one_where_the_largest_score_is_that_of_the_target(shape):
    outputs, targets = values(*shape, 5), labels(*shape)
    hits = accuracy(outputs, targets)
    assert hits.shape == (targets.numel(),)
    rows = zip(outputs.flatten(0, -2).tolist(), targets.flatten().tolist(), strict=True)
    assert hits.tolist() == [row.index(max(row)) == target for row, target in rows]
    assert accuracy(nn.functional.one_hot(targets, 5), targets).all()


def test_squared_error_is_taken_for_each_value():
    outputs, targets = values(4, 3), values(4, 3, seed=1)
    assert torch.equal(squared_error(outputs, targets), (outputs - targets) ** 2)


def test_squared_error_does_not_pair_every_output_with_every_target():
    # The classic: outputs (N, 1) and targets (N,) broadcast to N x N, and training still "works".
    with pytest.raises((LockstepError, ValueError, RuntimeError)):
        squared_error(values(4, 1), values(4))


def test_accuracy_does_not_pair_every_output_with_every_target():
    with pytest.raises((LockstepError, ValueError, RuntimeError)):
        accuracy(values(4, 5), labels(4, 1))


def test_bits_per_byte_of_a_blind_guess_is_eight():
    bits = bits_per_byte(torch.zeros(3, 7, 256), torch.zeros(3, 7, dtype=torch.long))
    assert bits.shape == (21,)
    # log(256) / log(2) in single precision.
    assert torch.allclose(bits, torch.tensor(8.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "samples", "items"), [((8,), 8, 1), ((8, 3), 8, 3), ((24,), 8, 3), ((1,), 1, 1)]
)
def test_items_per_sample_counts(shape, samples: int, items: int):
    assert items_per_sample(torch.zeros(shape), samples, "loss") == items


@pytest.mark.parametrize(
    ("shape", "samples"), [((), 8), ((1,), 8), ((7,), 8), ((12,), 8), ((0,), 8), ((3,), 2)]
)
def test_a_mean_or_an_odd_number_of_values_is_refused(shape, samples: int):
    with pytest.raises(RecipeError, match=rf'^loss gave .* {samples} samples.*reduction="none"'):
        items_per_sample(torch.zeros(shape), samples, "loss")


# Evaluation


def problem(size: int) -> Tensors:
    return Tensors(values(size, 6), labels(size))


def judge() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.5))


class Seen:
    """Writes down which samples were asked for."""

    def __init__(self, size: int) -> None:
        device = torch.device("cpu")
        self.inner = make_loader(problem(size), device, Finish(), watch=Watch())
        self.index_device = self.inner.index_device
        self.indices: list[int] = []

    def batches(self, requests):
        def noted():
            for request in requests:
                self.indices += request.indices.tolist()
                yield request

        return self.inner.batches(noted())


def recipe(shards: int = 4, **changes) -> Recipe:
    metrics = {"accuracy": accuracy, "bits_per_byte": bits_per_byte}
    return small(loss=cross_entropy, metrics=metrics, shards=shards, **changes)


def test_data_workers_of_an_evaluation_end_when_it_is_closed():
    options = {"watch": Watch(), "workers": 2, "resident": False}
    loader = make_loader(problem(20), torch.device("cpu"), Finish(), **options)
    before = set(multiprocessing.active_children())
    evaluation = Evaluation(loader, 20, recipe(), ALONE)
    evaluation(judge())
    assert len(started := set(multiprocessing.active_children()) - before) == 2
    evaluation.close()
    # Of themselves, not by a signal.
    assert [worker.exitcode for worker in started] == [0, 0]


def judged(group: Group, size: int, shards: int) -> tuple[dict[str, float], list[int]]:
    loader = Seen(size)
    return Evaluation(loader, size, recipe(shards), group)(judge()), loader.indices


SIZES = [(1, 4), (3, 4), (5, 4), (40, 4), (41, 8), (2500, 1), (2500, 2)]


def judged_all(group: Group) -> list[tuple[dict[str, float], list[int]]]:
    return [judged(group, size, shards) for size, shards in SIZES]


def test_every_sample_counts_once_with_the_same_bits_on_any_replicas():
    alone = judged_all(ALONE)
    for replicas in (2, 4):
        ranks = on_replicas(replicas, judged_all)
        for number, (size, _) in enumerate(SIZES):
            seen = [index for rank in ranks for index in rank[number][1]]
            assert sorted(seen) == list(range(size))
            assert all(rank[number][0] == alone[number][0] for rank in ranks)


@pytest.mark.parametrize(("size", "shards"), SIZES)
def test_the_means_are_those_of_a_plain_loop(size: int, shards: int):
    found, _ = judged(ALONE, size, shards)
    model, data = judge().eval(), problem(size)
    losses, hits = [], []
    with torch.no_grad():
        for inputs, target in (data[i] for i in range(size)):
            scores = model(inputs[None])[0]
            losses.append(-scores.double().log_softmax(0)[target].item())
            hits.append(int(scores.argmax()) == int(target))
    assert found["accuracy"] == sum(hits) / size
    # Losses in single precision, numbers below 10.
    assert found["test_loss"] == pytest.approx(math.fsum(losses) / size, rel=1e-6)
    assert found["bits_per_byte"] == pytest.approx(found["test_loss"] / math.log(2), rel=1e-6)
    assert list(found) == ["test_loss", "accuracy", "bits_per_byte"]


def test_evaluation_neither_learns_nor_drops_and_trains_on_afterwards():
    model = judge()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first, second = (Evaluation(Seen(20), 20, recipe(), ALONE)(model) for _ in range(2))
    assert first == second
    assert model.training
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_every_token_counts_where_samples_have_many():
    tokens, model = Tensors(values(10, 3, 6), labels(10, 3)), nn.Linear(6, 5)
    loader = make_loader(tokens, torch.device("cpu"), Finish(), watch=Watch())
    found = Evaluation(loader, 10, recipe(), ALONE)(model)
    hits = model(tokens.inputs).argmax(-1) == tokens.targets
    assert found["accuracy"] == int(hits.sum()) / 30


def test_a_metric_that_takes_a_mean_is_refused_by_its_name():
    broken = replace(recipe(), metrics={"my_mean": lambda o, t: accuracy(o, t).float().mean()})

    def work(group: Group) -> dict[str, float]:
        return Evaluation(Seen(20), 20, broken, group)(judge())

    with pytest.raises(RecipeError, match=r"^my_mean gave 1 value"):
        on_replicas(2, work)


def test_autocast_follows_the_recipe():
    layer, x = nn.Linear(6, 5), values(2, 6)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with autocast(recipe(precision=precision), torch.device("cpu")):
            assert layer(x).dtype == dtype


# The meter


def shard_by_shard(shards: int, group: Group) -> Plan:
    return make_plan(global_batch=shards, shards=shards, replicas=group.world.size, exact=True)


def metered(
    group: Group,
    losses: list[list[float]],
    stop: list[bool],
    interval: list[int],
    collected: int | None = None,
) -> Totals:
    """Shard s of step n has the loss losses[n][s]; each replica has its own wishes."""
    shards = len(losses[0])
    meter = Meter(shard_by_shard(shards, group), group)
    own = shards // group.world.size
    for step, row in enumerate(losses):
        for number in range(own):
            meter.note(number, torch.tensor(row[group.world.rank * own + number]), own)
        meter.turn(own)
        meter.after(step, shards, own)
        if step == collected:
            meter.collect()
    meter.close()
    return meter.exchange(stop[group.world.rank], interval[group.world.rank])


def both(losses, stop=(False, False), interval=(5, 9)) -> Totals:
    """What two replicas agree on."""
    work = partial(metered, losses=losses, stop=list(stop), interval=list(interval))
    first, second = on_replicas(2, work)
    assert repr(first) == repr(second)  # NaN is not equal to itself
    return first


def test_the_loss_is_the_mean_over_all_items_of_all_replicas():
    totals = both([[1.0, 2.0, 3.0, 4.0], [0.5, 0.5, 0.5, 0.5]])
    assert totals == Totals(losses=[12.0 / 8], bad_step=None, stop=False, uneven=False, interval=5)


def test_the_loss_has_the_same_bits_on_one_and_two_replicas():
    losses = values(7, 4).exp().tolist()
    one = metered(ALONE, losses, [False], [5])
    assert both(losses) == one
    # Nor do they depend on when the host read them.
    assert metered(ALONE, losses, [False], [5], collected=3) == one


@pytest.mark.parametrize("stop", [(True, False), (False, True), (True, True)], ids=str)
def test_all_stop_if_one_was_asked_to(stop):
    assert both([[1.0, 1.0]], stop=stop).stop is True


@pytest.mark.parametrize("interval", [(1, 100), (100, 1)], ids=str)
def test_the_first_replica_decides_the_interval(interval):
    assert both([[1.0, 1.0]], interval=interval).interval == interval[0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("shard", [0, 1])
def test_all_learn_of_the_first_step_whose_loss_is_not_finite(bad: float, shard: int):
    losses = [[1.0, 1.0] for _ in range(5)]
    losses[2][shard] = losses[3][0] = losses[4][1] = bad
    totals = both(losses)
    assert totals.bad_step == 2
    assert not math.isfinite(totals.losses[0])


def test_a_bad_step_zero_is_not_taken_for_none():
    assert both([[1.0, math.nan], [1.0, 1.0]]).bad_step == 0


@pytest.mark.parametrize("at_once", [False, True])
def test_every_interval_has_a_loss_of_its_own_whenever_it_is_read(at_once: bool):
    def work(group: Group) -> list[float]:
        meter = Meter(shard_by_shard(2, group), group)
        found = []
        for step, loss in enumerate((1.0, 3.0)):
            meter.note(0, torch.tensor(loss), 1)
            meter.turn(1)
            meter.after(step, 2, 1)
            meter.close()
            if not at_once:
                found += meter.exchange(False, 1).losses
        return found + meter.exchange(False, 1).losses

    assert on_replicas(2, work) == [[1.0, 3.0]] * 2


def test_noting_a_loss_keeps_no_graph():
    meter = Meter(shard_by_shard(1, ALONE), ALONE)
    meter.note(0, torch.ones((), requires_grad=True) * 2, 1)
    assert not meter.recent.requires_grad
