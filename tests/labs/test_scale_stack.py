"""A model in a stack is the same model trained alone: in float64, to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from lockstep import models
from lockstep.engine.sampler import GlobalOrder
from lockstep.labs.lab3_scale.batch_norm import NormedStack
from lockstep.labs.lab3_scale.model_stack import Momentum, Stack, alone, batches, epochs_of, train
from lockstep.labs.lab3_scale.optimizers import Members
from lockstep.labs.shared.digits import Samples, digits
from lockstep.layers import Shards, per_shard
from lockstep.optimizers import LAMB, LARC, LARS, NovoGrad

SIZES = (64, 12, 9, 10)
BATCH, STEPS = 100, 20
"""The last batch of an epoch is smaller; there is more than one epoch."""
ROUNDING = 1e-10
"""Sums of some hundred doubles of about one, over twenty steps."""


@pytest.fixture(scope="module")
def samples() -> Samples:
    return digits("cpu", torch.float64)


def normed_alone(sizes: Sequence[int], seed: int) -> nn.Module:
    """One of the models of a normed stack, as a module."""
    layers: list[nn.Module] = []
    for layer in alone(sizes, seed):
        layers.append(layer)
        if isinstance(layer, nn.Linear):
            layers.append(nn.BatchNorm1d(layer.out_features))
    return nn.Sequential(*layers[:-1])


def module_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return models.mlp(SIZES).double()


def trained_alone(
    samples: Samples, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, rates: Any
) -> list[Tensor]:
    """A plain loop over the engine's order."""
    order = GlobalOrder(len(samples), BATCH, seed)
    for step in range(STEPS):
        chosen = order.batch(*divmod(step, order.rounds_per_epoch))
        for group in optimizer.param_groups:
            group["lr"] = float(rates[step])
        optimizer.zero_grad()
        cross_entropy(model(samples.inputs[chosen]), samples.targets[chosen]).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def assert_member(stack: Stack, member: int, alone: Sequence[Tensor]) -> None:
    for stacked, own in zip(stack.trained(), alone, strict=True):
        assert torch.allclose(stacked[member].view_as(own), own, rtol=0, atol=ROUNDING)


def test_a_stacked_model_equals_the_same_model_trained_alone(samples: Samples):
    seeds = [3, 3, 4, 4]
    rates = torch.linspace(0.02, 0.2, STEPS, dtype=torch.float64)[:, None]
    rates = rates * torch.tensor([1.0, 3.0, 1.0, 2.0], dtype=torch.float64)
    momenta = torch.tensor([0.0, 0.9, 0.5, 0.0])
    stack = Stack(SIZES, seeds, dtype=torch.float64)
    found = train(stack, samples, Momentum(stack, rates, momenta), batch=BATCH, looks=[STEPS])
    for member, (seed, momentum) in enumerate(zip(seeds, momenta.tolist(), strict=True)):
        model = module_of(seed)
        optimizer = SGD(model.parameters(), lr=0.1, momentum=momentum)
        alone = trained_alone(samples, model, optimizer, seed, rates[:, member])
        assert_member(stack, member, alone)
        with torch.no_grad():
            scores = model(samples.test_inputs)
        right = (scores.argmax(1) == samples.test_targets).double().mean()
        assert found.accuracy[-1, member] == right
        loss = cross_entropy(scores, samples.test_targets)
        assert torch.isclose(found.loss[-1, member], loss, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(
    "make",
    [
        partial(SGD, momentum=0.9),
        partial(LARS, trust=0.02),
        partial(LARC, trust=0.02),
        LAMB,
        NovoGrad,
    ],
    ids=["SGD", "LARS", "LARC", "LAMB", "NovoGrad"],
)
def test_optimizers_that_look_at_layers_see_those_of_one_model(samples: Samples, make: Any):
    seeds, rates = [5, 5, 6], [0.02, 0.2, 0.1]
    stack = Stack(SIZES, seeds, dtype=torch.float64)
    update = Members(stack, make, torch.tensor(rates, dtype=torch.float64))
    train(stack, samples, update, batch=BATCH, looks=[STEPS])
    for member, (seed, rate) in enumerate(zip(seeds, rates, strict=True)):
        model = module_of(seed)
        alone = trained_alone(samples, model, make(model.parameters()), seed, [rate] * STEPS)
        assert_member(stack, member, alone)


def test_a_model_that_diverges_leaves_the_others_alone(samples: Samples):
    both = Stack(SIZES, [1, 1], dtype=torch.float64)
    update = Momentum(both, torch.tensor([0.5, 1e200], dtype=torch.float64))
    found = train(both, samples, update, batch=BATCH, looks=[0, STEPS])
    assert found.steps == [0, STEPS]
    assert found.accuracy[-1].isnan().tolist() == [False, True]
    assert found.accuracy[-1, 0] > 0.3
    one = Stack(SIZES, [1], dtype=torch.float64)
    update = Momentum(one, torch.tensor([0.5], dtype=torch.float64))
    train(one, samples, update, batch=BATCH, looks=[STEPS])
    assert_member(both, 0, [p[0].detach() for p in one.parameters])


@pytest.mark.parametrize("parts", [1, 4], ids=["synchronised", "shards"])
def test_normed_stacks_have_the_statistics_of_lockstep(samples: Samples, parts: int):
    few = samples.first_batches(96)
    sizes, seed, steps = (64, 8, 6, 10), 2, 6
    stack = NormedStack(sizes, [seed], parts, merged=True, dtype=torch.float64)
    update = Momentum(stack, torch.tensor([0.3], dtype=torch.float64))
    found = train(stack, few, update, batch=96, looks=[steps])

    shards = Shards(parts)
    model = per_shard(normed_alone(sizes, seed).double(), shards)
    optimizer = SGD(model.parameters(), lr=0.3)
    order = GlobalOrder(len(few), 96, seed)
    for step in range(steps):
        chosen = order.batch(*divmod(step, order.rounds_per_epoch))
        shards.enter(range(parts), [96 // parts] * parts)
        optimizer.zero_grad()
        cross_entropy(model(few.inputs[chosen]), few.targets[chosen]).backward()
        optimizer.step()
    weights = [p for n, p in model.named_parameters() if p.dim() == 2]
    for stacked, own in zip(stack.parameters[::2], weights, strict=True):
        assert torch.allclose(stacked[0], own, rtol=0, atol=ROUNDING)
    # As a run does before it evaluates: the mean of the statistics of all shards.
    for norm in (m for m in model.modules() if hasattr(m, "shard_mean")):
        norm.running_mean.copy_(norm.shard_mean.mean(0))
        norm.running_var.copy_(norm.shard_var.mean(0))
    model.eval()
    with torch.no_grad():
        loss = cross_entropy(model(few.test_inputs), few.test_targets)
    assert torch.isclose(found.loss[-1, 0], loss, rtol=0, atol=ROUNDING)


def test_own_statistics_are_those_of_the_first_replica(samples: Samples):
    few = samples.first_batches(96)
    ends = []
    for merged in (True, False):
        stack = NormedStack((64, 8, 10), [0], 48, merged=merged, dtype=torch.float64)
        update = Momentum(stack, torch.tensor([0.3], dtype=torch.float64))
        ends.append(train(stack, few, update, batch=96, looks=[8]).loss[-1, 0])
        rows = stack.means[0][0]
        seen = stack._seen(stack.means[0])[0, 0]
        assert torch.equal(seen, rows.mean(0) if merged else rows[0])
    # Training is the same, testing is not.
    assert ends[0] != ends[1]


def test_models_of_one_seed_see_the_same_samples_and_others_do_not(samples: Samples):
    inputs, targets = next(batches(samples, [7, 7, 8], BATCH))
    assert torch.equal(inputs[0], inputs[1])
    assert torch.equal(targets[0], targets[1])
    assert not torch.equal(targets[0], targets[2])


def test_the_ragged_batch_counts_as_what_it_is():
    assert epochs_of(0, 100, 250) == 0
    assert epochs_of(2, 100, 250) == 0.8
    assert epochs_of(3, 100, 250) == 1.0
    assert epochs_of(4, 100, 250) == 1.4
