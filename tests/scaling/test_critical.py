"""Steps against batch size: fits find what made the numbers, and predictions agree with sums."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.scaling.batch.critical import Tradeoff, fitted, from_noise


@given(st.floats(1, 1e6), st.floats(4, 4e3))
def test_a_fit_finds_what_made_the_numbers(least, critical):
    truth = Tradeoff(least, critical)
    batches = [2.0**n for n in range(2, 14)]
    found = fitted(batches, [truth.steps(b) for b in batches])
    # The solver stops at a relative change of 1e-8.
    assert found.least_steps == pytest.approx(least, rel=1e-4)
    assert found.critical_batch == pytest.approx(critical, rel=1e-4)


def test_a_fit_stands_noise():
    generator = numpy.random.default_rng(0)
    batches = [2.0**n for n in range(3, 12)]
    truth = Tradeoff(500.0, 120.0)
    exact = numpy.array([truth.steps(b) for b in batches])
    scatter = numpy.exp(0.05 * generator.standard_normal((50, len(batches))))
    found = [fitted(batches, (exact * one).tolist()) for one in scatter]
    # Nine points that are off by 5% each.
    assert numpy.median([f.critical_batch for f in found]) == pytest.approx(120.0, rel=0.1)


@given(st.floats(1, 1e5), st.floats(1e-3, 1e6), st.floats(1, 1e5))
def test_doubling_saves_between_half_and_nothing(least, critical, batch):
    saved = Tradeoff(least, critical).saved_by_doubling(batch)
    assert 0.0 <= saved <= 0.5
    # In closed form.
    assert saved == pytest.approx(0.5 * critical / (batch + critical), rel=1e-6, abs=1e-12)


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=50), st.floats(1, 1e5))
def test_a_prediction_takes_as_many_steps_as_it_was_made_from(noise, batch):
    found = from_noise(noise, batch)
    assert found.steps(batch) == pytest.approx(len(noise), rel=1e-9)


def test_a_prediction_for_another_batch_is_the_sum_over_the_same_path():
    noise = numpy.linspace(10, 1000, 500)
    found = from_noise(noise.tolist(), 64)
    path = 1 / (1 + noise / 64)
    for batch in (8, 64, 1024):
        assert found.steps(batch) == pytest.approx(((1 + noise / batch) * path).sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("batches", "steps"), [([8], [10]), ([8, 8], [10, 11]), ([8, 16], [10]), ([], [])]
)
def test_one_batch_size_is_not_enough(batches, steps):
    with pytest.raises(ValueError, match="two or more batch sizes"):
        fitted(batches, steps)


@pytest.mark.parametrize("bad", [math.inf, math.nan, 0.0, -1.0])
def test_a_target_that_was_never_reached_cannot_be_fitted(bad):
    with pytest.raises(ValueError, match="never reached the target"):
        fitted([8, 16, 32], [100.0, 60.0, bad])


@pytest.mark.parametrize(("noise", "batch"), [([], 8), ([math.inf], 8), ([-1.0], 8), ([1.0], 0)])
def test_noise_that_is_none_is_refused(noise, batch):
    with pytest.raises(ValueError, match="a noise scale for each step"):
        from_noise(noise, batch)
