"""AdaScale: gains between one and the scale, a clock of small steps, and the loss that it keeps."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.scaling.noise import Moments
from lockstep.scaling.rates.adascale import AdaScale
from lockstep.scaling.rates.schedules import linear


@given(st.floats(1, 100), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_step_is_worth_one_to_scale_steps(scale, gradient_sqr, trace):
    gain = AdaScale(scale, 32, 100).gain(Moments(gradient_sqr, trace))
    assert 1.0 - 1e-12 <= gain <= scale * (1 + 1e-12)


def test_noise_alone_makes_the_rule_linear_and_a_clean_gradient_gains_nothing():
    noisy, clean = AdaScale(8, 32, 80), AdaScale(8, 32, 80)
    assert [noisy.step(Moments(0.0, 5.0)) for _ in range(10)] == [8.0] * 10
    assert noisy.finished
    assert [clean.step(Moments(5.0, 0.0)) for _ in range(10)] == [1.0] * 10
    assert not clean.finished


@pytest.mark.parametrize("moments", [Moments(0.0, 0.0), Moments(math.nan, math.nan)])
def test_a_step_counts_as_one_while_the_gain_is_unknown(moments):
    assert AdaScale(8, 32, 80).step(moments) == 1.0


def test_the_schedule_advances_by_what_was_gained():
    adascale = AdaScale(4, 10, 40, linear)
    factors = [adascale.step(Moments(0.0, 1.0)) for _ in range(10)]
    assert factors == pytest.approx([4 * (1 - (n + 0.5) / 10) for n in range(10)])
    assert adascale.step(Moments(0.0, 1.0)) == 0.0


def final_loss(scale: int, start: float, seed: int) -> tuple[float, int]:
    """SGD on |w|**2 / 2 with known noise, as many small steps as 400: the loss, and steps taken."""
    generator = numpy.random.default_rng(seed)
    size, spread, batch, rate = 50, 4.0, 8, 0.02
    w = numpy.full(size, start)
    adascale, taken = AdaScale(scale, batch, 400), 0
    while not adascale.finished:
        truth = Moments(float(w @ w), size * spread**2)
        noise = generator.standard_normal(size) * spread / (batch * scale) ** 0.5
        w = w - rate * adascale.step(truth) * (w + noise)
        taken += 1
    return float(w @ w) / 2, taken


@pytest.mark.parametrize("start", [0.05, 1.0])
def test_fewer_steps_of_a_larger_batch_end_at_the_loss_of_the_small_one(start: float):
    one = [final_loss(1, start, seed) for seed in range(40)]
    eight = [final_loss(8, start, seed) for seed in range(40)]
    assert {taken for _, taken in one} == {400}
    assert max(taken for _, taken in eight) < 400
    small, large = (numpy.array([loss for loss, _ in runs]) for runs in (one, eight))
    error = math.hypot(small.std(), large.std()) / math.sqrt(40)
    # The paper bounds the loss from above; three errors of the mean for chance.
    assert large.mean() < small.mean() + 3 * error
    # And the linear rule, which takes each step for eight, would be off where the signal is large.
    if start == 0.05:
        assert numpy.mean([taken for _, taken in eight]) < 100


def test_a_run_goes_on_where_it_was_interrupted():
    whole, first, second = (AdaScale(4, 10, 100, linear) for _ in range(3))
    moments = [Moments(1.0, float(n)) for n in range(10)]
    expected = [whole.step(m) for m in moments]
    before = [first.step(m) for m in moments[:5]]
    second.load_state_dict(first.state_dict())
    assert before + [second.step(m) for m in moments[5:]] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.5, 32, 100), "at least the one it is scaled from"),
        ((math.nan, 32, 100), "at least the one it is scaled from"),
        ((8, 0, 100), "small_batch=0: it must be above 0"),
        ((8, 32, 0), "steps=0: it must be above 0"),
    ],
)
def test_arguments_that_cannot_be_scaled_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdaScale(*arguments)
