"""The global order: a function of seed and epoch, cut for the replicas afterwards."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset, TensorDataset

from lockstep.data import Tensors
from lockstep.engine.group import Group
from lockstep.engine.recipe.plan import make_plan
from lockstep.engine.sampler import GlobalBatches, GlobalOrder, Part, Step
from lockstep.errors import DataError
from lockstep.scaling.batch.growth import Growth
from lockstep.world import World
from replicas import on_replicas

cases = st.fixed_dictionaries(
    {
        "size": st.integers(1, 90),
        "shard_size": st.integers(1, 6),
        "shards": st.sampled_from([1, 2, 4, 8, 16]),
        "seed": st.integers(0, 5),
    }
)
epochs_of = st.integers(1, 3)


def steps(case: dict, replicas: int, rank: int, together: int = 0, **options) -> list[Step]:
    """The steps of one replica; `together` is the number of shards in one forward pass."""
    batch = case["shard_size"] * case["shards"]
    micro = case["shard_size"] * together if together else None
    plan = make_plan(
        global_batch=batch, shards=case["shards"], replicas=replicas, micro_batch=micro
    )
    order = GlobalOrder(case["size"], batch, case["seed"])
    growth = Growth(batch=batch, samples=case["size"], epochs=options.pop("epochs", 2))
    return list(order.steps(plan, rank, growth.strides(options.pop("start", 0)), **options))


def shards_of(part: Part) -> dict[int, list[int]]:
    """Shard to sample numbers, of a part that counts."""
    if not part.counts:
        return {shard: [] for shard in part.shards}
    pieces = part.request.indices.split(list(part.sizes))
    return {s: piece.tolist() for s, piece in zip(part.shards, pieces, strict=True)}


def by_shard(case: dict, replicas: int, **options) -> list[dict[int, list[int]]]:
    """For each step: shard to sample numbers, over all replicas."""
    ranks = [steps(case, replicas, rank, **options) for rank in range(replicas)]
    merged = []
    for row in zip(*ranks, strict=True):
        shards: dict[int, list[int]] = {}
        for step in row:
            for part in step.parts:
                own = shards_of(part)
                assert not own.keys() & shards.keys()
                shards |= own
        assert {(s.number, s.epoch, s.batch, s.samples) for s in row} == {row[0][:4]}
        merged.append(dict(sorted(shards.items())))
    return merged


def divisors(case: dict) -> list[int]:
    return [n for n in (1, 2, 4, 8, 16) if n <= case["shards"]]


@given(cases, st.data())
def test_every_sample_is_seen_exactly_once_per_epoch(case, data):
    replicas = data.draw(st.sampled_from(divisors(case)))
    rows = by_shard(case, replicas)
    per_epoch = len(rows) // 2
    for epoch in range(2):
        seen = [i for row in rows[epoch * per_epoch :][:per_epoch] for s in row.values() for i in s]
        assert sorted(seen) == list(range(case["size"]))


@given(cases, st.data())
def test_shards_hold_the_same_samples_whatever_the_replicas(case, data):
    replicas = data.draw(st.sampled_from(divisors(case)))
    alone = by_shard(case, 1)
    assert by_shard(case, replicas) == alone
    assert by_shard(case, 1, together=1) == alone
    assert all(list(row) == list(range(case["shards"])) for row in alone)


@given(cases)
def test_the_global_batch_is_the_next_slice_of_the_order(case):
    batch = case["shard_size"] * case["shards"]
    order = GlobalOrder(case["size"], batch, case["seed"])
    for step, row in zip(steps(case, 1, 0), by_shard(case, case["shards"]), strict=True):
        expected = order.epoch(step.epoch)[step.batch * batch :][:batch]
        assert step.samples == len(expected)
        assert [i for shard in row.values() for i in shard] == expected.tolist()
        assert torch.equal(order.batch(step.epoch, step.batch), expected)


@given(cases)
def test_shards_are_full_except_in_the_last_batch_of_an_epoch(case):
    order = GlobalOrder(case["size"], case["shard_size"] * case["shards"], case["seed"])
    for step, row in zip(steps(case, 1, 0), by_shard(case, 1), strict=True):
        sizes = {len(samples) for samples in row.values()}
        if step.batch + 1 < order.rounds_per_epoch:
            assert sizes == {case["shard_size"]}
        else:
            assert max(sizes) - min(sizes) <= 1


@given(cases, st.data())
def test_samples_are_borrowed_only_where_all_shards_of_a_part_are_empty(case, data):
    replicas = data.draw(st.sampled_from(divisors(case)))
    rows = by_shard(case, 1)
    for rank in range(replicas):
        for step, row in zip(steps(case, replicas, rank), rows, strict=True):
            for part in step.parts:
                held = sum(len(row[shard]) for shard in part.shards)
                assert part.counts == (held > 0)
                assert len(part.request.indices) == sum(part.sizes) == max(held, 1)
                assert len(part.sizes) == len(part.shards)
                assert part.request.epoch == step.epoch
                if not part.counts:
                    assert int(part.request.indices[0]) < case["size"]


@given(cases, st.data())
def test_starting_in_mid_run_is_skipping_what_came_before(case, data):
    replicas = data.draw(st.sampled_from(divisors(case)))
    whole = steps(case, replicas, 0)
    start = data.draw(st.integers(0, len(whole)))
    rest = steps(case, replicas, 0, start=start)
    assert len(rest) == len(whole) - start
    for mine, expected in zip(rest, whole[start:], strict=True):
        assert mine[:4] == expected[:4]
        for part, other in zip(mine.parts, expected.parts, strict=True):
            assert torch.equal(part.request.indices, other.request.indices)
            assert part[1:] == other[1:]


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [GlobalOrder(100, 10, seed).epoch(epoch) for seed in range(5) for epoch in range(5)]
    # 100! orders: two that agree were not drawn by chance.
    assert not any(torch.equal(a, b) for n, a in enumerate(orders) for b in orders[:n])


def test_the_batch_size_does_not_change_the_order():
    assert torch.equal(GlobalOrder(100, 10, 3).epoch(2), GlobalOrder(100, 64, 3).epoch(2))


def test_the_order_is_the_same_in_any_sequence_of_questions():
    straight = [GlobalOrder(50, 10, 0).epoch(epoch) for epoch in range(12)]
    asked = GlobalOrder(50, 10, 0)
    for epoch in (3, 0, 11, 7, 3, 4, 5, 6, 3, 0, 0, 11):
        assert torch.equal(asked.epoch(epoch), straight[epoch])
    assert len(asked._kept) <= 4


def test_the_order_does_not_touch_torchs_own_generator():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    GlobalOrder(50, 10, 0).epoch(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_place_is_as_likely_for_every_sample():
    firsts = torch.tensor([int(GlobalOrder(10, 10, seed).epoch(0)[0]) for seed in range(2000)])
    # 200 each, binomial: deviation of sqrt(2000 * 0.1 * 0.9) = 13.4; five of them.
    assert (torch.bincount(firsts, minlength=10) - 200).abs().max() < 5 * 13.4


# GlobalBatches, in plain loops


def numbers(size: int) -> Tensors:
    return Tensors(torch.arange(size, dtype=torch.float64)[:, None], torch.arange(size) * 2)


@given(
    st.integers(1, 60), st.integers(1, 20), st.integers(1, 9), st.integers(1, 2), st.integers(0, 3)
)
def test_the_parts_of_all_ranks_make_up_the_global_batch(size, batch, replicas, epochs, seed):
    options = {"global_batch": batch, "seed": seed, "epochs": epochs, "num_replicas": replicas}
    ranks = [GlobalBatches(numbers(size), rank=rank, **options) for rank in range(replicas)]
    order = GlobalOrder(size, batch, seed)
    assert len(ranks[0]) == epochs * order.rounds_per_epoch
    for number, parts in enumerate(zip(*ranks, strict=True)):
        expected = order.batch(*divmod(number, order.rounds_per_epoch))
        held = [int(i) for part in parts if part.share for i in part.targets // 2]
        assert held == expected.tolist()
        assert all(len(part.inputs) >= 1 for part in parts)
        # DDP's mean of share * mean loss is the mean of the global batch; numbers up to 60.
        mean = sum(part.share * part.inputs.mean().item() for part in parts) / replicas
        assert mean == pytest.approx(expected.double().mean().item(), rel=1e-13)
        assert sum(part.share for part in parts) == pytest.approx(replicas, rel=1e-13)


def test_a_loader_can_be_iterated_again_and_says_how_long_it_is():
    batches = GlobalBatches(numbers(10), global_batch=4, epochs=2)
    first = [b.targets.tolist() for b in batches]
    assert len(first) == len(batches) == 6
    assert [b.targets.tolist() for b in batches] == first
    assert first[:3] != first[3:]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_read_by_workers_gives_the_same_batches(workers: int):
    pairs = [numbers(20)[i] for i in range(20)]
    expected = list(GlobalBatches(numbers(20), global_batch=6))
    for mine, other in zip(
        GlobalBatches(pairs, global_batch=6, workers=workers), expected, strict=True
    ):
        assert torch.equal(mine.inputs, other.inputs)
        assert torch.equal(mine.targets, other.targets)


def test_augmentation_and_preparation_are_applied():
    batches = GlobalBatches(
        numbers(6),
        global_batch=6,
        augment=[lambda x, keys: x + keys.indices[:, None]],
        prepare=lambda x: -x,
    )
    (batch,) = batches
    assert torch.equal(batch.inputs[:, 0], -batch.targets.double())


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2), 0


def test_a_data_set_without_a_length_is_refused_with_the_reason():
    with pytest.raises(DataError, match="map-style"):
        GlobalBatches(Stream(), global_batch=4)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def regression(samples: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, 4, dtype=torch.float64, generator=generator)
    return TensorDataset(inputs, inputs[:, :3].sin())


def plain_loop(group: Group, samples: int, batch: int) -> Tensor:
    """What a user writes; the weights after three epochs."""
    module = net()
    model = module if group.alone else DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for inputs, targets, share in GlobalBatches(
        regression(samples), global_batch=batch, seed=1, epochs=3
    ):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        (share * loss).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach()


# 33 leaves a last batch of one sample: with 2 and 4 replicas some have nothing to do.
@pytest.mark.parametrize(("samples", "batch"), [(33, 8), (30, 7), (32, 8)])
@pytest.mark.parametrize("replicas", [2, 4])
def test_a_plain_loop_reaches_the_weights_of_one_replica(replicas, samples, batch):
    one = plain_loop(Group(World()), samples, batch)
    for weights in on_replicas(replicas, lambda group: plain_loop(group, samples, batch)):
        # Double precision, 15 smooth steps: rounding of 1e-16 grows by less than 1e4.
        assert float((weights - one).abs().max()) < 1e-12


def test_a_plain_loop_on_one_replica_is_a_loop_over_the_order():
    module = net()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    inputs, targets = regression(33).tensors
    order = GlobalOrder(33, 8, 1)
    for epoch in range(3):
        for batch in order.epoch(epoch).split(8):
            optimizer.zero_grad()
            nn.functional.mse_loss(module(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    one = plain_loop(Group(World()), 33, 8)
    assert torch.equal(one, nn.utils.parameters_to_vector(module.parameters()))


def test_ranks_come_from_torch_distributed_unless_they_are_given():
    def ask(group: Group) -> list[tuple[int, int]]:
        own = GlobalBatches(numbers(8), global_batch=4)
        told = GlobalBatches(numbers(8), global_batch=4, rank=0, num_replicas=1)
        return [(own.rank, own.replicas), (told.rank, told.replicas)]

    assert on_replicas(2, ask) == [[(0, 2), (0, 1)], [(1, 2), (0, 1)]]
    assert ask(None) == [(0, 1), (0, 1)]
    assert next(islice(GlobalBatches(numbers(8), global_batch=4), 1)).share == 1.0
