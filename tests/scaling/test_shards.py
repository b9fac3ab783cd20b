"""Batch norm and dropout per shard: what torch's own layers do to each shard by itself."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from lockstep.engine.group import Group
from lockstep.errors import RecipeError
from lockstep.layers.batch_norm import ShardBatchNorm, SyncedBatchNorm
from lockstep.layers.dropout import ShardDropout
from lockstep.layers.per_shard import per_shard
from lockstep.layers.shards import Shards
from replicas import on_replicas

# Double precision, sums of some hundred values of size 1: rounding stays below 1e-13.
ROUNDING = 1e-12


def values(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def enter(shards: Shards, sizes: Sequence[int], counts: bool = True, first: int = 0, key: int = 0):
    rows = range(first, first + len(sizes))
    shards.turn_to(key)
    shards.enter(rows, sizes, counts)


def norm(kind=nn.BatchNorm2d, channels: int = 3, **options) -> nn.Module:
    """A layer that does not start as the identity."""
    torch.manual_seed(1)
    layer = kind(channels, **options).double()
    with torch.no_grad():
        if layer.weight is not None:
            layer.weight.uniform_(0.5, 2)
            layer.bias.uniform_(-1, 1)
        if layer.running_mean is not None:
            layer.running_mean.uniform_(-1, 1)
            layer.running_var.uniform_(0.5, 2)
    return layer


def converted(layer: nn.Module, shards: Shards) -> nn.Module:
    return per_shard(nn.Sequential(deepcopy(layer)), shards)[0]


def one_by_one(
    layer: nn.Module, x: Tensor, sizes: Sequence[int], layers: Sequence[nn.Module] = ()
) -> tuple[Tensor, list[nn.Module]]:
    """torch's own layer, a copy of it for each shard with the same weights."""
    copies = list(layers) or [deepcopy(layer) for _ in sizes]
    for own in copies:
        own.weight, own.bias = layer.weight, layer.bias
    pieces = zip(copies, x.split(list(sizes)), strict=True)
    return torch.cat([own(piece) for own, piece in pieces if len(piece)]), copies


def close(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (nn.BatchNorm1d, ()),
        (nn.BatchNorm1d, (7,)),
        (nn.BatchNorm2d, (4, 5)),
        (nn.BatchNorm3d, (2, 3, 2)),
    ],
)
@pytest.mark.parametrize("sizes", [(4, 4), (5, 3, 4, 4), (0, 3, 0, 2), (8,)], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.3, "eps": 1e-2}, {"affine": False}], ids=str
)
def test_batch_norm_per_shard_is_torchs_own_on_each_shard(kind, shape, sizes, options):
    plain = norm(kind, **options)
    shards = Shards(len(sizes))
    mine = converted(plain, shards)
    assert isinstance(mine, ShardBatchNorm)
    layers: list[nn.Module] = []
    for number in range(3):
        x = values(sum(sizes), 3, *shape, seed=number)
        weights = values(*x.shape, seed=100 + number)
        ours, theirs = (x.clone().requires_grad_() for _ in range(2))
        enter(shards, sizes)
        out = mine(ours)
        expected, layers = one_by_one(plain, theirs, sizes, layers)
        assert close(out, expected)
        plain.zero_grad()
        mine.zero_grad()
        (expected * weights).sum().backward()
        (out * weights).sum().backward()
        assert close(ours.grad, theirs.grad)
        for mine_weight, weight in zip(mine.parameters(), plain.parameters(), strict=True):
            assert close(mine_weight.grad, weight.grad)
        for row, layer in enumerate(layers):
            assert close(mine.shard_mean[row], layer.running_mean)
            assert close(mine.shard_var[row], layer.running_var)


def test_a_shard_gives_the_same_bits_alone_and_in_company():
    x = values(12, 3, 4, 4).float()
    shards = Shards(3)
    mine = converted(norm().float(), shards)
    enter(shards, (4, 4, 4))
    together = mine(x)
    rows = mine.shard_mean.clone()
    for row in range(3):
        alone = converted(norm().float(), shards)
        enter(shards, (4,), first=row)
        assert torch.equal(alone(x[4 * row : 4 * row + 4]), together[4 * row : 4 * row + 4])
        assert torch.equal(alone.shard_mean[row], rows[row])


def test_a_batch_of_some_shards_touches_the_statistics_of_those_alone():
    shards = Shards(4)
    mine = converted(norm(), shards)
    before = mine.shard_mean.clone()
    enter(shards, (4, 4), first=2)
    mine(values(8, 3, 2, 2))
    assert torch.equal(mine.shard_mean[:2], before[:2])
    assert not (mine.shard_mean[2:] == before[2:]).any()


def test_rows_of_an_input_may_be_parts_of_samples():
    plain, shards = norm(nn.BatchNorm1d), Shards(2)
    mine = converted(plain, shards)
    enter(shards, (2, 3))
    x = values(5 * 4, 3)
    expected, _ = one_by_one(plain, x, (8, 12))
    assert close(mine(x), expected)


@pytest.mark.parametrize("layer", [norm(nn.BatchNorm1d), nn.Dropout(0.5)], ids=["norm", "dropout"])
def test_inputs_whose_rows_are_no_samples_are_refused(layer: nn.Module):
    shards = Shards(2)
    mine = converted(layer, shards)
    enter(shards, (2, 3))
    with pytest.raises(ValueError, match=r"7 rows for 5 samples.*samples in the first dimension"):
        mine(values(7, 3))


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (1, 0, 3)], ids=str)
def test_one_sample_of_one_pixel_gives_no_nan_and_leaves_no_trace(sizes):
    plain, shards = norm(), Shards(len(sizes))
    mine = converted(plain, shards)
    before = mine.shard_mean.clone(), mine.shard_var.clone()
    x = values(sum(sizes), 3, 1, 1).requires_grad_()
    enter(shards, sizes)
    out = mine(x)
    out.square().sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()
    assert close(out[0].flatten(), plain.bias)
    assert mine.shard_var.isfinite().all()
    assert torch.equal(mine.shard_mean[0], before[0][0])
    assert torch.equal(mine.shard_var[0], before[1][0])


def test_a_batch_that_does_not_count_leaves_no_trace():
    plain, shards = norm(), Shards(2)
    mine = converted(plain, shards)
    before = deepcopy(dict(mine.named_buffers()))
    x = values(8, 3, 4, 4)
    enter(shards, (4, 4), counts=False)
    out = mine(x)
    assert all(torch.equal(buffer, before[name]) for name, buffer in mine.named_buffers())
    enter(shards, (4, 4))
    assert torch.equal(mine(x), out)
    assert not torch.equal(mine.shard_mean, before["shard_mean"])


def test_evaluation_uses_the_running_statistics_and_keeps_them():
    plain, shards = norm(), Shards(2)
    mine = converted(plain, shards).eval()
    before = deepcopy(dict(mine.named_buffers()))
    x = values(5, 3, 4, 4)
    assert torch.equal(mine(x), plain.eval()(x))
    assert all(torch.equal(buffer, before[name]) for name, buffer in mine.named_buffers())


def test_a_layer_that_was_frozen_stays_frozen():
    plain = norm().eval()
    shards = Shards(2)
    model = per_shard(nn.Sequential(deepcopy(plain), nn.Dropout(0.5).eval()), shards)
    assert not model[0].training
    assert not model[1].training
    enter(shards, (3, 3))
    x = values(6, 3, 2, 2)
    assert torch.equal(model(x), plain(x))


def test_a_layer_without_running_statistics_is_converted_too():
    plain, shards = norm(track_running_stats=False), Shards(2)
    mine = converted(plain, shards)
    assert mine.running_mean is None
    x = values(8, 3, 4, 4)
    enter(shards, (3, 5))
    assert close(mine(x), one_by_one(plain, x, (3, 5))[0])
    assert close(mine.eval()(x), plain.eval()(x))


def test_a_momentum_of_none_is_refused():
    with pytest.raises(RecipeError, match=r"momentum=None.*momentum=0\.1"):
        per_shard(nn.Sequential(nn.BatchNorm2d(3, momentum=None)), Shards(2))


def test_a_momentum_of_zero_is_accepted_and_keeps_the_statistics():
    plain, shards = norm(momentum=0.0), Shards(2)
    mine = converted(plain, shards)
    enter(shards, (4, 4))
    mine(values(8, 3, 4, 4))
    assert torch.equal(mine.shard_mean, plain.running_mean.expand(2, -1))


# Dropout


def dropout(p: float = 0.3, local: int = 4) -> tuple[ShardDropout, Shards]:
    shards = Shards(local)
    layer = converted(nn.Dropout(p), shards)
    assert isinstance(layer, ShardDropout)
    return layer, shards


@pytest.mark.parametrize("shape", [(3,), (5, 7), (2, 3, 3)], ids=str)
@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 1, 2), (2, 0, 3)], ids=str)
def test_the_mask_of_a_shard_is_the_same_alone_and_in_company(sizes, shape):
    layer, shards = dropout()
    x = torch.ones(sum(sizes), *shape)
    enter(shards, sizes)
    together = layer(x).split(list(sizes))
    for row, (size, expected) in enumerate(zip(sizes, together, strict=True)):
        if size:
            enter(shards, (size,), first=row)
            assert torch.equal(layer(torch.ones(size, *shape)), expected)


def test_the_mask_of_a_shard_does_not_depend_on_the_row_that_computes_it():
    x = torch.ones(6, 50)
    masks = []
    for first, row in ((0, 3), (2, 1), (3, 0)):
        shards = Shards(4, first=first)
        layer = converted(nn.Dropout(0.3), shards)
        enter(shards, (6,), first=row)
        masks.append(layer(x))
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])


def test_masks_differ_between_layers_shards_and_steps():
    layer, shards = dropout(0.5)
    x = torch.ones(8, 100)
    enter(shards, (4, 4))
    first, second = layer(x), layer(x)
    enter(shards, (4, 4), key=1)
    third = layer(x)
    enter(shards, (4, 4))
    assert torch.equal(layer(x), first)
    halves = [*first.split(4), *second.split(4), *third.split(4)]
    # 400 fair coins each: two masks agree in half of them, and in none exactly.
    assert not any(torch.equal(a, b) for n, a in enumerate(halves) for b in halves[:n])


def test_the_mask_does_not_read_or_move_torchs_own_generator():
    layer, shards = dropout()
    x = torch.ones(4, 10)
    enter(shards, (4,))
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = layer(x)
    assert torch.equal(torch.get_rng_state(), before)
    enter(shards, (4,))
    torch.manual_seed(2)
    assert torch.equal(layer(x), first)


def test_the_layout_of_the_input_does_not_change_the_mask():
    layer, shards = dropout()
    x = values(4, 3, 5, 5)
    enter(shards, (2, 2))
    plain = layer(x)
    enter(shards, (2, 2))
    assert torch.equal(layer(x.contiguous(memory_format=torch.channels_last)), plain)


def test_dropout_of_nothing_and_in_evaluation_is_the_identity():
    x = torch.ones(4, 10)
    for layer, shards in (dropout(0.0), dropout(0.5)):
        enter(shards, (2, 2))
        assert layer.eval()(x) is x
    layer, shards = dropout(0.0)
    enter(shards, (2, 2))
    assert torch.equal(layer(x), x)


def test_dropout_of_everything_gives_zeros_as_torchs_own_does():
    layer, shards = dropout(1.0)
    enter(shards, (2, 2))
    x = torch.ones(4, 10)
    assert torch.equal(nn.Dropout(1.0)(x), torch.zeros(4, 10))
    assert torch.equal(layer(x), torch.zeros(4, 10))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_expectation(p: float):
    layer, shards = dropout(p)
    enter(shards, (10, 10))
    out = layer(torch.ones(20, 5000, dtype=torch.float64))
    # 16 random bits each: the share that is kept is the next multiple of 1 / 65,536.
    kept = round((1 - p) * 65536) / 65536
    assert set(out.unique().tolist()) == {0.0, 1 / kept}
    # A value has variance p / (1 - p); the mean of 10^5 is five deviations away at most.
    assert abs(out.mean().item() - 1) < 5 * (p / (1 - p) / 1e5) ** 0.5


def test_the_gradient_passes_where_the_mask_does():
    layer, shards = dropout(0.5)
    enter(shards, (2, 2))
    x = values(4, 10).requires_grad_()
    out = layer(x)
    out.sum().backward()
    assert torch.equal(x.grad, (out != 0) * 2.0)


# Over the global batch


def synced_on(group: Group, sizes: Sequence[int], options: dict) -> tuple[Tensor, ...]:
    """One replica's share of two batches: outputs, gradients, statistics."""
    shards = Shards(1)
    model = per_shard(nn.Sequential(norm(**options)), shards, reduce=group.sum)
    assert isinstance(model[0], SyncedBatchNorm)
    first = sum(sizes[: group.world.rank])
    size = sizes[group.world.rank]
    results = []
    for step in range(2):
        x, weights = batch(sum(sizes), step)
        counts = size > 0
        mine = slice(first, first + size) if counts else slice(0, 1)
        piece = x[mine].requires_grad_()
        shards.enter(range(1), (max(size, 1),), counts)
        out = model(piece)
        model.zero_grad()
        ((out * weights[mine]).sum() * counts).backward()
        results += [out.detach()[:size], piece.grad[:size]]
        results += [group.sum(p.grad) for p in model.parameters()]
    state = model[0]
    if state.running_mean is not None:
        results += [state.running_mean, state.running_var]
    return tuple(results)


def batch(samples: int, step: int) -> tuple[Tensor, Tensor]:
    # Far from zero: a variance from squares of means would lose digits here.
    return values(samples, 3, 2, 3, seed=step) + 50, values(samples, 3, 2, 3, seed=10 + step)


def whole(samples: int, options: dict) -> tuple[list[Tensor], list[Tensor]]:
    """torch's own batch norm on the global batch: what is per sample, and what is not."""
    layer = norm(**options)
    per_sample, others = [], []
    for step in range(2):
        x, weights = batch(samples, step)
        x.requires_grad_()
        out = layer(x)
        layer.zero_grad()
        (out * weights).sum().backward()
        per_sample += [out.detach(), x.grad]
        others += [p.grad.clone() for p in layer.parameters()]
    if layer.running_mean is not None:
        others += [layer.running_mean, layer.running_var]
    return per_sample, others


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((4, 4), {}),
        ((5, 2), {"momentum": 0.3}),
        ((1, 6), {"affine": False}),
        ((3, 3), {"track_running_stats": False}),
        ((7, 0), {}),
        ((2, 2, 2, 2), {}),
        ((1, 2, 3, 5), {}),
        ((0, 1, 0, 4), {}),
    ],
    ids=str,
)
def test_synced_batch_norm_on_replicas_is_torchs_own_on_the_whole_batch(sizes, options):
    replicas = on_replicas(len(sizes), lambda group: synced_on(group, sizes, options))
    per_sample, others = whole(sum(sizes), options)
    number = 2 + len(list(norm(**options).parameters()))
    for step in range(2):
        for offset in range(2):
            pieces = torch.cat([r[step * number + offset] for r in replicas])
            # Values near 50 are normalised: 100 times the rounding of values near 1.
            assert torch.allclose(pieces, per_sample[2 * step + offset], rtol=1e-10, atol=1e-10)
    for result in replicas:
        shared = [r for n, r in enumerate(result) if n >= 2 * number or n % number >= 2]
        for mine, expected in zip(shared, others, strict=True):
            assert torch.allclose(mine, expected, rtol=1e-10, atol=1e-10)


def test_synced_batch_norm_alone_is_torchs_own():
    plain = norm()
    mine = per_shard(nn.Sequential(deepcopy(plain)), Shards(1), reduce=lambda x: x)[0]
    x = values(6, 3, 4, 4)
    assert close(mine(x), plain(x))
    assert close(mine.running_mean, plain.running_mean)
    assert close(mine.running_var, plain.running_var)
    assert close(mine.eval()(x), plain.eval()(x))


@torch.no_grad()
def test_synced_batch_norm_adds_half_precision_in_single():
    plain = norm().float()
    mine = per_shard(nn.Sequential(deepcopy(plain)), Shards(1), reduce=lambda x: x)[0]
    x = (values(64, 3, 16, 16) + 30).to(torch.bfloat16)
    out = mine(x)
    assert out.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits of a normalised value below 8: the last step rounds by 2^-6 at most.
    assert float((out.float() - plain(x.float())).abs().max()) < 2**-5


# The conversion


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.body = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
        self.more = nn.ModuleDict({"norm": nn.BatchNorm1d(4), "drop": nn.Dropout(0.1)})
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.conv(x)).mean((2, 3))
        return self.head(self.more["drop"](self.more["norm"](x)))


@pytest.mark.parametrize("reduce", [None, lambda x: x], ids=["shard", "sync"])
def test_names_and_parameter_objects_stay(reduce):
    model = Net()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = dict(model.named_parameters())
    assert per_shard(model, Shards(2), reduce) is model
    after = dict(model.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in after)
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(model.state_dict()[name], state[name]) for name in state)
    model.load_state_dict(Net().state_dict())
    Net().load_state_dict(model.state_dict())


@pytest.mark.parametrize("reduce", [None, lambda x: x], ids=["shard", "sync"])
def test_all_layers_below_are_converted(reduce):
    model = per_shard(Net(), Shards(2), reduce)
    kinds = {type(m) for m in model.modules()}
    assert not kinds & {nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout}
    assert {ShardDropout, SyncedBatchNorm if reduce else ShardBatchNorm} <= kinds


def test_an_optimizer_made_before_trains_the_converted_model():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shards = Shards(2)
    per_shard(model, shards)
    before = model.body[0].weight.clone()
    enter(shards, (4, 4))
    (model(values(8, 1, 5, 5).float()) * values(8, 2).float()).sum().backward()
    optimizer.step()
    assert not torch.equal(model.body[0].weight, before)


def test_running_statistics_start_from_those_of_the_model():
    plain = norm()
    mine = converted(plain, Shards(3))
    assert torch.equal(mine.shard_mean, plain.running_mean.expand(3, -1))
    assert torch.equal(mine.shard_var, plain.running_var.expand(3, -1))


class OwnDropout(nn.Dropout):
    def forward(self, input: Tensor) -> Tensor:
        return input * 3


class OwnNorm(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return input * 3


@pytest.mark.parametrize(
    "layer",
    [OwnDropout(0.5), OwnNorm(3), nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.InstanceNorm2d(3)],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_with_a_forward_of_their_own_are_left_alone(layer: nn.Module):
    model = nn.Sequential(layer)
    assert per_shard(model, Shards(2))[0] is layer


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(3)], ids=["dropout", "norm"])
def test_a_layer_that_is_used_twice_is_converted_in_both_places(layer: nn.Module):
    model = per_shard(nn.Sequential(layer, nn.Linear(3, 3), layer), Shards(2))
    assert type(model[0]) is not type(layer)
    assert model[2] is model[0]


# Random bits


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_random_bits_are_as_many_as_wanted_and_do_not_follow_each_other(share: float):
    shards = Shards(8, seed=3)
    enter(shards, (64,) * 8)
    bits = shards.keep((512, 4096), share).double()
    count, variance = bits.numel(), share * (1 - share)
    assert abs(bits.mean().item() - share) < 5 * (variance / count) ** 0.5
    centred = bits.flatten() - bits.mean()
    # Correlation with the neighbour, with the other places of the same hash, and across rows.
    for distance in (1, 2, 3, 4, 64, 4096, 64 * 4096):
        product = (centred[:-distance] * centred[distance:]).mean().item() / variance
        assert abs(product) < 5 / (count - distance) ** 0.5


def test_random_bits_of_steps_shards_and_draws_are_independent():
    masks = []
    for step in range(3):
        shards = Shards(2, seed=1)
        shards.random = True
        enter(shards, (8, 8), key=step)
        masks += [m for _ in range(2) for m in shards.keep((16, 5000), 0.5).double().split(8)]
    for number, first in enumerate(masks):
        for second in masks[:number]:
            product = ((first - 0.5) * (second - 0.5)).mean().item() * 4
            assert abs(product) < 5 / first.numel() ** 0.5


def test_a_layer_that_no_batch_was_announced_to_still_draws():
    assert 0 < Shards(1).keep((4, 100), 0.5).sum() < 400


@pytest.mark.parametrize("together", [False, True])
def test_rounds_at_once_are_rounds_one_after_the_other(together: bool):
    # Two shards of four samples, three rounds of each: all of the first shard, then of the second.
    x = values(2 * 3 * 4, 3, 5, 5).view(2, 3, 4, 3, 5, 5)

    def layers() -> tuple[Shards, nn.Module]:
        shards = Shards(2, first=6)
        model = nn.Sequential(norm(), nn.Dropout(0.4))
        return shards, per_shard(model, shards)

    shards, model = layers()
    shards.turn_to(5)
    shards.enter(range(2), (4,) * 6, rounds=3)
    with pytest.MonkeyPatch.context() as patch:
        if together:
            patch.setattr("torch.compiler.is_compiling", lambda: True)
        at_once = model(x.flatten(0, 2)).view(x.shape)

    shards, other = layers()
    shards.turn_to(5)
    for number in range(3):
        shards.enter(range(2), (4, 4), round=number)
        one = other(x[:, number].flatten(0, 1)).view(x[:, number].shape)
        torch.testing.assert_close(at_once[:, number], one, rtol=ROUNDING, atol=ROUNDING)
    for name in ("shard_mean", "shard_var"):
        torch.testing.assert_close(
            getattr(model[0], name), getattr(other[0], name), rtol=ROUNDING, atol=ROUNDING
        )


def test_rounds_of_a_step_draw_other_random_numbers():
    shards = Shards(1)
    shards.random = True
    masks = []
    for step in (3, 4):
        shards.turn_to(step)
        for number in range(4):
            shards.enter(range(1), (1,), round=number)
            masks.append(tuple(shards.keep((200,), 0.5).tolist()))
    assert len(set(masks)) == 8
