"""Activation checkpointing: a second computation draws, and remembers, nothing new."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from lockstep.errors import RecipeError
from lockstep.layers.batch_norm import ShardBatchNorm
from lockstep.layers.per_shard import per_shard
from lockstep.layers.shards import Shards

Run = Callable[..., Tensor]
NEW = partial(checkpoint, use_reentrant=False)
OLD = partial(checkpoint, use_reentrant=True)


def plainly(function: Run, *arguments: Tensor) -> Tensor:
    return function(*arguments)


class Blocks(nn.Module):
    """Three blocks that share a dropout, each computed again in backward if `run` does that."""

    def __init__(self, run: Run, inner: Run = plainly) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(3))
        self.drop, self.last = nn.Dropout(0.4), nn.Dropout(0.2)
        self.run, self.inner = run, inner

    def block(self, number: int, x: Tensor) -> Tensor:
        x = self.drop(self.norms[number](self.layers[number](x)))
        x = self.inner(lambda y: self.drop(y.tanh()), x)
        return self.drop(x) + x

    def forward(self, x: Tensor) -> Tensor:
        for number in range(3):
            x = self.run(partial(self.block, number), x)
        return self.last(x)


def trained(run: Run, inner: Run = plainly) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients and running statistics after two batches of two shards."""
    torch.manual_seed(0)
    shards = Shards(2)
    model = per_shard(Blocks(run, inner), shards)
    x = torch.randn(12, 8, requires_grad=True)
    for step in range(2):
        shards.turn_to(step)
        shards.enter(range(2), (6, 6))
        model(x).square().sum().backward()
    norms = [m for m in model.modules() if isinstance(m, ShardBatchNorm)]
    return [p.grad for p in (*model.parameters(), x)], [m.shard_mean for m in norms]


@pytest.mark.parametrize(
    ("run", "inner"), [(NEW, plainly), (OLD, plainly), (NEW, NEW), (NEW, OLD), (OLD, NEW)]
)
def test_a_checkpoint_changes_neither_gradients_nor_statistics(run: Run, inner: Run) -> None:
    gradients, means = trained(run, inner)
    expected, plain_means = trained(plainly)
    assert all(map(torch.equal, gradients, expected))
    assert all(map(torch.equal, means, plain_means))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_sequential_draws_the_same_masks(reentrant: bool) -> None:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3)) for _ in range(6)]
    shards = Shards(1)
    model = per_shard(nn.Sequential(*layers), shards)
    again = partial(checkpoint_sequential, model, 3, use_reentrant=reentrant)
    found = []
    for run in (model, lambda x: again(input=x)):
        shards.enter(range(1), (4,))
        x = torch.ones(4, 8, requires_grad=True)
        run(x).sum().backward()
        found.append(x.grad)
    assert torch.equal(*found)


def test_masks_of_later_parts_do_not_depend_on_checkpoints() -> None:
    shards = Shards(1)
    drop = per_shard(nn.Sequential(nn.Dropout(0.5)), shards)
    masks = []
    for run in (plainly, NEW):
        shards.enter(range(1), (64,))
        x = torch.ones(64, 4, requires_grad=True)
        run(drop, x).sum().backward()
        masks.append(drop(torch.ones(64, 4)))
    assert torch.equal(*masks)


class Remade(torch.autograd.Function):
    """Somebody's own way to compute a layer again."""

    @staticmethod
    def forward(ctx, x: Tensor, layer: nn.Module) -> Tensor:
        ctx.save_for_backward(x)
        ctx.layer = layer
        return layer(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            own = x.detach().requires_grad_()
            return torch.autograd.grad(ctx.layer(own), own, gradient)[0], None


def test_another_way_to_compute_dropout_again_is_refused() -> None:
    shards = Shards(1)
    drop = per_shard(nn.Sequential(nn.Dropout(0.5)), shards)
    shards.enter(range(1), (4,))
    y = Remade.apply(torch.ones(4, 4, requires_grad=True), drop)
    with pytest.raises(RecipeError, match=r"computed again during backward.*checkpoint"):
        y.sum().backward()
