"""The noise scale: of a problem whose answer is known, with an interval that keeps its promise."""

from __future__ import annotations

import math

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lockstep.scaling.noise import (
    Moments,
    NoiseScale,
    ShardNoise,
    StepNoise,
    adam_diagonal,
    moments,
    squared_length,
)

SIZE, SPREAD = 20, 3.0
WEIGHTS = torch.arange(1.0, SIZE + 1, dtype=torch.float64) / 10
SCALE = SIZE * SPREAD**2 / WEIGHTS.square().sum().item()
"""Of the loss |w - x|**2 / 2 with x normal of this spread: tr(Sigma) / |w|**2."""


class Quadratic:
    """The loss |w - x|**2 / 2, whose gradient is w minus the mean of the samples."""

    def __init__(self, seed: int = 0) -> None:
        self.weights = nn.Parameter(WEIGHTS.clone())
        self.generator = torch.Generator().manual_seed(seed)

    def backward(self, samples: int, weight: float = 1.0) -> None:
        shape = (samples, SIZE)
        x = SPREAD * torch.randn(shape, generator=self.generator, dtype=torch.float64)
        ((self.weights - x).square().sum(1).mean() / 2 * weight).backward()


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.integers(1, 10_000), st.floats(1.01, 1000))
def test_two_batch_sizes_give_both_unknowns(gradient_sqr, trace, small, times):
    big = small * times
    found = moments(gradient_sqr + trace / small, gradient_sqr + trace / big, small, big)
    # Differences of nearly equal numbers: relative to the larger of the two, over the lever.
    total = (gradient_sqr + trace / small) / (times - 1.0)
    assert found.gradient_sqr == pytest.approx(gradient_sqr, rel=1e-9, abs=1e-13 * total * times)
    assert found.trace == pytest.approx(trace, rel=1e-9, abs=1e-12 * total * big)


@pytest.mark.parametrize(("small", "big"), [(1, 1), (4, 2), (0, 1), (-1, 2), (math.nan, 2)])
def test_sizes_that_tell_nothing_are_refused(small, big):
    with pytest.raises(ValueError, match="tell nothing about noise"):
        moments(1.0, 1.0, small, big)


def test_shards_find_the_noise_scale_of_a_quadratic():
    problem = Quadratic()
    source = ShardNoise([problem.weights], batch=32, shards=4, noise=NoiseScale(math.inf))
    for _ in range(6000):
        problem.weights.grad = None
        for shard in range(4):
            problem.backward(8, weight=1 / 4)
            source.after(shard)
    estimate = source.estimate()
    assert estimate.value == pytest.approx(SCALE, rel=0.05)
    assert estimate.low < SCALE < estimate.high
    assert estimate.steps == 6000


def test_steps_find_the_noise_scale_of_a_quadratic():
    problem = Quadratic(1)
    source = StepNoise([problem.weights], batch=32, noise=NoiseScale(math.inf))
    for _ in range(8000):
        problem.weights.grad = None
        problem.backward(32)
        source.step()
    estimate = source.estimate()
    assert estimate.value == pytest.approx(SCALE, rel=0.05)
    assert estimate.low < SCALE < estimate.high
    assert estimate.steps == 4000


def drawn(trials: int, steps: int, signal: float, small: int = 8, shards: int = 4) -> numpy.ndarray:
    """(trials, steps, 2) squared lengths of one shard's gradient, and of the batch's."""
    generator = numpy.random.default_rng(0)
    noise = generator.standard_normal((trials, steps, shards, SIZE)) * SPREAD / small**0.5
    gradients = signal * WEIGHTS.numpy() + noise
    one = (gradients[:, :, 0] ** 2).sum(-1)
    whole = (gradients.mean(2) ** 2).sum(-1)
    return numpy.stack([one, whole], -1)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("memory", [40.0, math.inf])
@pytest.mark.parametrize("signal", [1.0, 0.3])
def test_the_interval_holds_the_truth_as_often_as_it_says(confidence, memory, signal):
    trials, inside = 600, 0
    for lengths in drawn(trials, 120, signal):
        noise = NoiseScale(memory, confidence)
        for one, whole in lengths:
            noise.see(moments(one, whole, 8, 32))
        estimate = noise.estimate()
        inside += estimate.low <= SCALE / signal**2 <= estimate.high
    # Three standard deviations of the count, and two points for lengths that are not normal.
    slack = 3 * math.sqrt(confidence * (1 - confidence) / trials) + 0.02
    assert abs(inside / trials - confidence) < slack


def test_without_a_gradient_the_noise_scale_has_no_upper_end():
    unbounded = 0
    for lengths in drawn(200, 120, signal=0.0):
        noise = NoiseScale(math.inf, 0.95)
        for one, whole in lengths:
            noise.see(moments(one, whole, 8, 32))
        estimate = noise.estimate()
        unbounded += estimate.high == math.inf
        assert estimate.low >= 0.0
    # An end where there is none is an error of the interval: one in twenty is allowed, on one side.
    assert unbounded >= 0.93 * 200


def test_an_average_follows_a_noise_scale_that_changes():
    noise = NoiseScale(memory=10)
    for trace in [1.0] * 200 + [100.0] * 200:
        noise.see(Moments(1.0, trace))
    # What is left of the old value after 200 steps: 0.9**200.
    assert noise.estimate().value == pytest.approx(100.0, rel=1e-6)


def test_means_are_divided_and_not_ratios_averaged():
    noise = NoiseScale(math.inf)
    noise.see(Moments(-1.0, 10.0))
    noise.see(Moments(3.0, 10.0))
    assert noise.estimate().value == 10.0


def test_nothing_seen_is_no_number():
    estimate = NoiseScale().estimate()
    assert math.isnan(estimate.value)
    assert (estimate.low, estimate.high, estimate.steps) == (0.0, math.inf, 0)


def test_zero_gradients_have_no_noise_scale():
    noise = NoiseScale()
    for _ in range(5):
        noise.see(moments(0.0, 0.0, 1, 2))
    assert math.isnan(noise.estimate().value)


def test_noise_without_a_gradient_is_infinite_and_a_gradient_without_noise_zero():
    noise = NoiseScale()
    noise.see(Moments(-0.5, 2.0))
    assert noise.estimate().value == math.inf
    clean = NoiseScale()
    clean.see(Moments(2.0, -0.1))
    assert clean.estimate().value == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_step_that_is_not_finite_is_counted_and_left_out(bad):
    noise = NoiseScale()
    noise.see(Moments(2.0, 4.0))
    noise.see(Moments(bad, 4.0))
    noise.see(Moments(2.0, 4.0))
    estimate = noise.estimate()
    assert (estimate.value, estimate.steps, estimate.skipped) == (2.0, 2, 1)


@pytest.mark.parametrize("settings", [{"memory": 1.0}, {"memory": 0.0}, {"memory": math.nan}])
def test_an_average_of_nothing_is_refused(settings):
    with pytest.raises(ValueError, match="more than one step"):
        NoiseScale(**settings)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_an_interval_that_cannot_be_is_refused(confidence):
    with pytest.raises(ValueError, match=r"a share such as 0\.95"):
        NoiseScale(confidence=confidence)


def test_one_shard_is_refused_with_what_to_use_instead():
    with pytest.raises(ValueError, match="StepNoise"):
        ShardNoise([], batch=32, shards=1)


def test_a_batch_of_one_has_no_parts_to_compare():
    with pytest.raises(ValueError, match="a batch of 1 cannot be compared in 2 parts"):
        ShardNoise([], batch=1, shards=2)


# Gradients of a network


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def loss(net: nn.Module, samples: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 6, generator=generator, dtype=torch.float64)
    return net(x).square().sum(1).mean()


def flat(net: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def test_shards_note_the_first_and_the_whole():
    net = network()
    source = ShardNoise(net.parameters(), batch=12, shards=3)
    singles = []
    for shard in range(3):
        alone = network()
        loss(alone, 4, shard).backward()
        singles.append(flat(alone))
        (loss(net, 4, shard) / 3).backward()
        source.after(shard)
    expected = moments(
        singles[0].square().sum().item(), (sum(singles) / 3).square().sum().item(), 4, 12
    )
    # Rounding of a few sums.
    assert source.estimate().moments == pytest.approx(expected, rel=1e-12)


def pair(a: Tensor, b: Tensor, batch: int = 4) -> Moments:
    """What two steps tell together."""
    each = (a.square().sum() + b.square().sum()).item() / 2
    return moments(each, ((a + b) / 2).square().sum().item(), batch, 2 * batch)


def test_steps_are_compared_in_pairs_that_share_none():
    net = network()
    source = StepNoise(net.parameters(), batch=4)
    seen = []
    for step in range(5):
        net.zero_grad()
        loss(net, 4, step).backward()
        before = flat(net).clone()
        source.step()
        assert torch.equal(flat(net), before)
        seen.append(before)
    estimate = source.estimate()
    assert estimate.steps == 2
    each = [pair(seen[0], seen[1]), pair(seen[2], seen[3])]
    weights = numpy.array([0.99, 1.0]) / 1.99
    expected = weights @ numpy.array(each)
    assert estimate.moments == pytest.approx(tuple(expected), rel=1e-10)


def test_adam_s_noise_scale_is_that_of_the_gradient_in_its_units():
    net = network()
    adam = torch.optim.Adam(net.parameters(), lr=0.0, betas=(0.9, 0.99), eps=1e-3)
    source = StepNoise(net.parameters(), batch=4, diagonal=adam_diagonal(adam))
    expected = NoiseScale()
    second, seen = torch.zeros(53, dtype=torch.float64), []
    for step in range(4):
        net.zero_grad()
        loss(net, 4, step).backward()
        source.step()
        seen.append(flat(net).clone())
        if step % 2:
            root = (second / (1 - 0.99**step)).sqrt() + 1e-3
            expected.see(pair(seen[-2] / root, seen[-1] / root))
        second = 0.99 * second + 0.01 * seen[-1].square()
        adam.step()
    # Rounding, and a factor that is a difference of nearly equal numbers.
    assert tuple(source.estimate().moments) == pytest.approx(
        tuple(expected.estimate().moments), rel=1e-10
    )


def test_frozen_and_unused_parameters_do_not_count():
    net = network()
    net[0].weight.requires_grad_(False)
    source = StepNoise([*net.parameters(), nn.Parameter(torch.ones(3))], batch=4)
    for step in range(2):
        net.zero_grad()
        loss(net, 4, step).backward()
        source.step()
    assert source.estimate().steps == 1


def test_no_gradients_at_all_are_no_step():
    source = StepNoise([nn.Parameter(torch.ones(3))], batch=4)
    for _ in range(4):
        source.step()
    assert source.estimate().steps == 0


def test_sparse_gradients_are_refused_with_what_to_do():
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ValueError, match=r"parameter 0, of shape \(5, 2\), is sparse"):
        StepNoise(table.parameters(), batch=2).step()


def test_a_nan_in_a_gradient_is_left_out_and_counted():
    p = nn.Parameter(torch.ones(3))
    source = StepNoise([p], batch=4)
    for value in (1.0, math.nan, 1.0, 2.0):
        p.grad = torch.full((3,), value)
        source.step()
    assert source.estimate()[4:] == (1, 1)


def test_lengths_of_half_precision_are_summed_in_double():
    # Its square, 1e-10, is nothing in float16.
    gradient = torch.full((10,), 1e-5, dtype=torch.bfloat16)
    expected = gradient.double().square().sum().item()
    assert squared_length([gradient]).item() == pytest.approx(expected, rel=0.01)
    assert squared_length([]).item() == 0.0
