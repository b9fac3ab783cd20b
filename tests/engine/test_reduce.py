"""The exchange of gradients: one fixed tree over the shards, the same bits on any replicas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lockstep.engine.exchange.reduce import ExactReduce, FastReduce, tree_reduce
from lockstep.engine.group import Group
from lockstep.world import World
from replicas import on_replicas

pytestmark = pytest.mark.xdist_group("reduce")
LENGTHS = [0, 1, 2, 3, 5, 7, 8, 1000, 4097]


def tree(pieces: list[numpy.ndarray]) -> numpy.ndarray:
    """The sum of 1, 2, 4, 8 ... pieces: neighbours first."""
    while len(pieces) > 1:
        pieces = [pieces[n] + pieces[n + 1] for n in range(0, len(pieces), 2)]
    return pieces[0]


def piece(length: int, rank: int) -> numpy.ndarray:
    """Numbers of very different size: another order of the sum has other bits."""
    generator = numpy.random.default_rng([length, rank])
    sizes = 10.0 ** generator.integers(-4, 5, length)
    return (generator.standard_normal(length) * sizes).astype(numpy.float32)


@pytest.mark.parametrize("replicas", [2, 4])
def test_tree_reduce_adds_in_tree_order_bit_for_bit(replicas: int):
    def reduce(group: Group) -> dict[int, bytes]:
        results = {}
        for length in LENGTHS:
            buffer = torch.from_numpy(piece(length, group.world.rank))
            tree_reduce(buffer)
            results[length] = buffer.numpy().tobytes()
        return results

    answers = on_replicas(replicas, reduce)
    for length, bits in answers[0].items():
        assert bits == tree([piece(length, rank) for rank in range(replicas)]).tobytes(), length
    assert all(answer == answers[0] for answer in answers)


def test_a_buffer_that_is_exchanged_in_slices_has_the_same_sum(monkeypatch):
    monkeypatch.setattr("lockstep.engine.exchange.reduce.SLICE", 100)

    def reduce(group: Group) -> bytes:
        buffer = torch.from_numpy(piece(1003, group.world.rank))
        tree_reduce(buffer)
        return buffer.numpy().tobytes()

    expected = tree([piece(1003, rank) for rank in range(4)]).tobytes()
    assert on_replicas(4, reduce) == [expected] * 4


def test_another_order_of_the_sum_would_show():
    pieces = [piece(1000, rank) for rank in range(4)]
    assert not numpy.array_equal(tree(pieces), ((pieces[0] + pieces[1]) + pieces[2]) + pieces[3])


def test_tree_reduce_works_inside_a_larger_buffer():
    def reduce(group: Group) -> list[float]:
        whole = torch.full((11,), -1.0)
        part = whole[3:8]
        part.copy_(torch.arange(5.0) + group.world.rank)
        tree_reduce(part)
        return whole.tolist()

    assert on_replicas(2, reduce) == [[-1.0] * 3 + [1.0, 3.0, 5.0, 7.0, 9.0] + [-1.0] * 3] * 2


@pytest.mark.parametrize("replicas", [2, 4])
def test_a_bf16_wire_is_within_two_roundings_of_the_sum(replicas: int):
    """Off by u = 2**-8 on the way in and on the way out: (2u + u**2) of the absolute values.

    The sum in float32 adds 2**-24 for each level of the tree, which the 1% covers.
    """

    def reduce(group: Group) -> dict[int, numpy.ndarray]:
        results = {}
        for length in LENGTHS:
            buffer = torch.from_numpy(piece(length, group.world.rank))
            tree_reduce(buffer, torch.bfloat16)
            results[length] = buffer.numpy()
        return results

    answers = on_replicas(replicas, reduce)
    for length, ours in answers[0].items():
        pieces = [piece(length, rank).astype(numpy.float64) for rank in range(replicas)]
        bound = 2**-7 * 1.01 * sum(numpy.abs(p) for p in pieces)
        assert (numpy.abs(ours - sum(pieces)) <= bound).all()
        assert all(answer[length].tobytes() == ours.tobytes() for answer in answers)
    # And it does round: a wire that carried everything would be far closer.
    exact = sum(piece(4097, rank).astype(numpy.float64) for rank in range(replicas))
    assert numpy.abs(answers[0][4097] / exact - 1).max() > 2**-10


def test_sums_on_a_bf16_wire_are_made_in_float32():
    def reduce(group: Group) -> float:
        buffer = torch.full((4,), 256.0 if group.world.rank == 0 else 1.0)
        tree_reduce(buffer, torch.bfloat16)
        return buffer[0].item()

    # 259 lies between 258 and 260. In bfloat16 256 + 1 is 256 already, and the sum 258.
    assert on_replicas(4, reduce) == [260.0] * 4


def test_bf16_gradients_are_added_in_bf16_s_own_type_without_a_wire():
    def reduce(group: Group) -> tuple[float, torch.dtype]:
        buffer = torch.full((4,), 256.0 if group.world.rank == 0 else 1.0, dtype=torch.bfloat16)
        tree_reduce(buffer)
        return buffer[0].item(), buffer.dtype

    assert on_replicas(4, reduce) == [(258.0, torch.bfloat16)] * 4


# ExactReduce, in plain loops

SHARD, STEPS, FEATURES = 3, 3, 6


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, 5))


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), nn.Linear(9, 7), nn.Linear(7, 5))
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


class Tied(nn.Module):
    """One weight, used at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(FEATURES, 5, bias=False)
        self.middle = nn.Linear(5, FEATURES)
        self.write = nn.Linear(FEATURES, 5, bias=False)
        self.write.weight = self.read.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.write(self.middle(self.read(x).tanh()))


class Image(nn.Module):
    """Convolutions with weights in channels_last order."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, (1, 2))
        self.second = nn.Conv2d(3, 5, (1, 2))
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 2, 1, 3).contiguous(memory_format=torch.channels_last)
        return self.second(self.first(x).tanh()).flatten(1)


def batch(step: int, shards: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    samples = shards * SHARD
    sizes = 10.0 ** torch.randint(-2, 2, (samples, 1), generator=generator)
    inputs = torch.randn(samples, FEATURES, generator=generator) * sizes
    return inputs, torch.randn(samples, 5, generator=generator)


def exact_loop(
    group: Group,
    *,
    build: Callable[[], nn.Module] = dense,
    shards: int = 4,
    to_none: bool = True,
    **ddp,
) -> list[Tensor]:
    """What a user writes around ExactReduce; the weights and the last gradients."""
    torch.manual_seed(0)
    module = build()
    model = module if group.alone else DistributedDataParallel(module, **ddp)
    reduce = ExactReduce.attach(model)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.01)
    own = shards // group.world.size
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=to_none)
        inputs, targets = batch(step, shards)
        for number in range(own):
            shard = group.world.rank * own + number
            mine = slice(shard * SHARD, (shard + 1) * SHARD)
            with reduce.part(number, own):
                losses = (model(inputs[mine]) - targets[mine]).square().sum(1)
                reduce.weigh(losses.sum(), shards * SHARD).backward()
        optimizer.step()
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    return [t.detach().clone() for t in [*module.parameters(), *gradients]]


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def alone(**options) -> list[Tensor]:
    return exact_loop(Group(World()), **options)


MODELS = {"dense": dense, "frozen": frozen, "tied": Tied, "channels_last": Image}
models = pytest.mark.parametrize("model", MODELS)


@cache
def together(replicas: int) -> list[dict[tuple[str, int], list[Tensor]]]:
    """All models with 1, 2, 4 and 8 shards on each replica, in one launch."""

    def work(group: Group) -> dict[tuple[str, int], list[Tensor]]:
        return {
            (name, own): exact_loop(group, build=build, shards=own * replicas)
            for name, build in MODELS.items()
            for own in (1, 2, 4, 8)
        }

    return on_replicas(replicas, work)


@models
@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("own", [1, 2, 4, 8])
def test_replicas_reach_the_bits_of_one(model: str, replicas: int, own: int):
    one = alone(build=MODELS[model], shards=own * replicas)
    assert all(same_bits(many[model, own], one) for many in together(replicas))


Way = tuple[str, bool, bool, float]
# A cap far below one layer: every layer has a bucket of its own.
SMALL = 1e-5


@cache
def ways() -> list[dict[Way, list[Tensor]]]:
    """All ways in which DDP may keep gradients and a user may clear them, in one launch."""

    def work(group: Group) -> dict[Way, list[Tensor]]:
        return {
            (name, as_view, to_none, cap): exact_loop(
                group,
                build=build,
                shards=8,
                to_none=to_none,
                gradient_as_bucket_view=as_view,
                bucket_cap_mb=cap,
            )
            for name, build in MODELS.items()
            for as_view in (True, False)
            for to_none in (True, False)
            for cap in (25, SMALL)
        }

    return on_replicas(2, work)


@models
@pytest.mark.parametrize("as_view", [True, False], ids=["views", "copies"])
@pytest.mark.parametrize("to_none", [True, False], ids=["to none", "to zero"])
@pytest.mark.parametrize("cap", [25, SMALL], ids=["one bucket", "many buckets"])
def test_the_way_that_ddp_keeps_gradients_does_not_change_the_bits(model, as_view, to_none, cap):
    one = alone(build=MODELS[model], shards=8)
    assert all(same_bits(many[model, as_view, to_none, cap], one) for many in ways())


def test_a_small_cap_really_makes_many_buckets():
    def work(group: Group) -> int:
        begun = []

        class Notes:
            def exchange_begins(self) -> None:
                begun.append(1)

            def exchange_ends(self) -> None:
                pass

        model = DistributedDataParallel(dense(), bucket_cap_mb=SMALL)
        reduce = ExactReduce.attach(model, Notes())
        for _ in range(2):  # the buckets are made again after the first step
            begun.clear()
            with reduce.part(0, 1):
                reduce.weigh(model(batch(0, 1)[0]).sum(), 1).backward()
        return len(begun)

    assert min(on_replicas(2, work)) > 1


def shard_gradients(build: Callable[[], nn.Module], shards: int) -> list[list[numpy.ndarray]]:
    """The gradient of each shard by itself, from the first weights."""
    gradients = []
    for shard in range(shards):
        torch.manual_seed(0)
        model = build()
        inputs, targets = batch(0, shards)
        mine = slice(shard * SHARD, (shard + 1) * SHARD)
        (model(inputs[mine]) - targets[mine]).square().sum().backward()
        gradients.append([p.grad.numpy() for p in model.parameters() if p.grad is not None])
    return gradients


@models
@pytest.mark.parametrize("shards", [1, 2, 4, 8, 16, 32])
def test_the_gradient_of_one_replica_is_the_tree_sum_of_its_shards(model, shards: int):
    build = MODELS[model]
    torch.manual_seed(0)
    model = build()
    reduce = ExactReduce.attach(model)
    inputs, targets = batch(0, shards)
    for number in range(shards):
        mine = slice(number * SHARD, (number + 1) * SHARD)
        with reduce.part(number, shards):
            losses = (model(inputs[mine]) - targets[mine]).square()
            reduce.weigh(losses.sum(), shards * SHARD).backward()
    ours = [p.grad.numpy() for p in model.parameters() if p.grad is not None]
    pieces = shard_gradients(build, shards)
    for number, gradient in enumerate(ours):
        expected = tree([shard[number] for shard in pieces]) / numpy.float32(shards * SHARD)
        assert numpy.array_equal(gradient, expected)
    assert reduce.waiting == []


def test_frozen_parameters_get_no_gradient():
    *_, first, bias = (p.grad for p in _trained(frozen).parameters() if not p.requires_grad)
    assert first is None
    assert bias is None


def _trained(build: Callable[[], nn.Module]) -> nn.Module:
    model = build()
    reduce = ExactReduce.attach(model)
    for number in range(4):
        with reduce.part(number, 4):
            reduce.weigh(model(batch(0, 1)[0]).sum(), 4).backward()
    return model


class Choosing(nn.Module):
    """Which of two weights is used depends on the shard."""

    def __init__(self) -> None:
        super().__init__()
        self.even, self.odd = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor, odd: bool) -> Tensor:
        return x * (self.odd if odd else self.even)


@pytest.mark.parametrize("odd", [(0, 0, 1, 1), (1, 1, 0, 0), (0, 1, 0, 1), (0, 1, 0, 0)], ids=str)
def test_a_weight_that_only_some_shards_use_keeps_all_of_its_gradient(odd):
    model = Choosing()
    reduce = ExactReduce.attach(model)
    for number, choice in enumerate(odd):
        with reduce.part(number, 4):
            reduce.weigh(model(torch.full((2,), 2.0**number), bool(choice)).sum(), 1).backward()
    for weight, mine in ((model.even, 0), (model.odd, 1)):
        expected = sum(2.0**number for number, choice in enumerate(odd) if choice == mine)
        assert weight.grad.tolist() == [expected] * 2


def test_the_watch_sees_every_exchange():
    def work(group: Group) -> list[str]:
        told: list[str] = []

        class Notes:
            def exchange_begins(self) -> None:
                told.append("begins")

            def exchange_ends(self) -> None:
                told.append("ends")

        model = DistributedDataParallel(dense())
        reduce = ExactReduce.attach(model, Notes())
        for number in range(2):
            with reduce.part(number, 2):
                reduce.weigh(model(batch(0, 1)[0]).sum(), 2).backward()
        return told

    # One bucket, and only the last of two shards exchanges.
    assert on_replicas(2, work) == [["begins", "ends"]] * 2


# FastReduce


@pytest.mark.parametrize(("replicas", "items"), [(1, 8), (4, 8), (2, 7)])
def test_fast_reduce_weighs_so_that_the_mean_over_replicas_divides_by_the_items(replicas, items):
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    reduce = FastReduce(nn.Linear(1, 1), replicas)
    for number in range(1, replicas + 1):
        reduce.backward(weight * number, items)
    # Autograd has added the replicas' gradients. A product and a quotient: two roundings.
    expected = sum(range(1, replicas + 1)) / items
    assert weight.grad.item() / replicas == pytest.approx(expected, rel=4e-16)


def fast_loop(group: Group, own: int) -> Tensor:
    torch.manual_seed(0)
    module = dense().double()
    model = module if group.alone else DistributedDataParallel(module)
    reduce = FastReduce(model, group.world.size)
    inputs, targets = (x.double() for x in batch(0, 4))
    mine = torch.arange(len(inputs)).chunk(group.world.size)[group.world.rank]
    for number, part in enumerate(mine.chunk(own)):
        with reduce.part(number, own):
            losses = (model(inputs[part]) - targets[part]).square().sum(1)
            reduce.backward(losses.sum(), len(inputs))
    return torch.cat([p.grad.flatten() for p in module.parameters()])


@pytest.mark.parametrize(("replicas", "own"), [(1, 2), (1, 4), (2, 1), (2, 2), (2, 3), (4, 1)])
def test_fast_reduce_gives_the_mean_gradient_of_the_global_batch(replicas: int, own: int):
    torch.manual_seed(0)
    module = dense().double()
    inputs, targets = (x.double() for x in batch(0, 4))
    (module(inputs) - targets).square().sum(1).mean().backward()
    expected = torch.cat([p.grad.flatten() for p in module.parameters()])
    for gradient in on_replicas(replicas, partial(fast_loop, own=own)):
        # Double precision, twelve samples.
        assert torch.allclose(gradient, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("broken", range(4))
def test_a_step_that_broke_off_leaves_nothing_to_the_next(broken: int):
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 2), torch.randn(4, 3)
    reduce = ExactReduce.attach(model)

    def step(until: int = 4) -> bytes:
        for number in range(4):
            with reduce.part(number, 4):
                if number == until:
                    raise MemoryError
                reduce.backward(model(inputs[number : number + 1]).sum(), 4)
        assert model.weight.grad is not None
        return model.weight.grad.numpy().tobytes()

    whole = step()
    with pytest.raises(MemoryError):
        step(until=broken)
    assert step() == whole
