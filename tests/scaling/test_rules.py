"""Rules: what each of them keeps, where they meet, and what they refuse."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lockstep.scaling.rates.rules import (
    adam_sqrt_rule,
    adascale_gain,
    legw_rule,
    linear_rule,
    sqrt_rule,
)

scales = st.floats(1e-3, 1e3)
squares = st.floats(0, 1e30)


@given(scales, scales)
def test_two_small_scales_are_one_large(first, second):
    for rule in (linear_rule, sqrt_rule):
        # Three roundings.
        assert rule(first) * rule(second) == pytest.approx(rule(first * second), rel=1e-15)


@given(scales)
def test_legw_is_the_square_root_with_as_many_steps_of_warmup(scale):
    rate, warmup = legw_rule(scale)
    assert rate == sqrt_rule(scale)
    # An epoch has `scale` times fewer steps.
    assert warmup / scale == 1.0


@given(st.floats(1, 1e3), squares, squares)
def test_a_gain_lies_between_one_and_the_scale(scale, variance, gradient_sqr):
    if variance + gradient_sqr == 0.0:
        return
    gain = adascale_gain(scale, variance, gradient_sqr)
    assert 1.0 - 1e-12 <= gain <= scale * (1 + 1e-12)


@given(st.floats(1, 1e3), st.floats(1e-6, 1e6))
def test_a_gain_is_that_of_the_paper(scale, ratio):
    expected = (ratio + 1.0) / (ratio / scale + 1.0)
    assert adascale_gain(scale, ratio, 1.0) == pytest.approx(expected, rel=1e-12)
    # Only the ratio of the two counts.
    assert adascale_gain(scale, ratio * 1e-300, 1e-300) == pytest.approx(expected, rel=1e-9)


def test_a_gain_is_that_of_real_gradients():
    """By definition the ratio of E|g|**2 of the small batch to that of the large."""
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(200_000, 4, generator=generator, dtype=torch.float64) * 2.0 + 1.0
    mean = samples.mean(0)
    small = samples.view(-1, 4, 4).mean(1)
    large = samples.view(-1, 32, 4).mean(1)
    variance = (small - mean).square().sum(1).mean().item()
    gain = adascale_gain(8, variance, mean.square().sum().item())
    # 6,250 large batches: about one part in a hundred.
    ratio = small.square().sum(1).mean() / large.square().sum(1).mean()
    assert gain == pytest.approx(ratio.item(), rel=0.02)


@given(st.floats(1, 10), st.floats(0.9, 0.999), st.floats(0.9, 0.9999), st.floats(1e-12, 1e-3))
def test_adam_remembers_as_many_samples_as_before(scale, first, second, eps):
    scaled = adam_sqrt_rule(scale, (first, second), eps)
    assert scaled.rate == sqrt_rule(scale)
    for before, after in zip((first, second), scaled.betas, strict=True):
        assert 0.0 <= after < 1.0
        assert 1.0 - after == pytest.approx(scale * (1.0 - before), rel=1e-9)
    assert scaled.eps * scaled.rate == pytest.approx(eps, rel=1e-14)


def test_adam_s_rule_undone_is_nothing():
    there = adam_sqrt_rule(4, (0.9, 0.999), 1e-8)
    back = adam_sqrt_rule(0.25, there.betas, there.eps)
    assert back.betas == pytest.approx((0.9, 0.999))
    assert back.rate * there.rate == 1.0


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_that_is_none_is_refused(scale):
    for rule in (linear_rule, sqrt_rule, legw_rule, adam_sqrt_rule):
        with pytest.raises(ValueError, match="the large batch divided by the small one"):
            rule(scale)


def test_adam_s_rule_has_an_end_and_names_it():
    with pytest.raises(ValueError, match="holds up to 10 times the batch"):
        adam_sqrt_rule(16, (0.9, 0.999))
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        adam_sqrt_rule(2, (0.9, 1.0))


@pytest.mark.parametrize(("variance", "gradient_sqr"), [(-1.0, 1.0), (1.0, math.nan), (0.0, 0.0)])
def test_a_gain_of_nothing_is_refused(variance, gradient_sqr):
    with pytest.raises(ValueError, match=r"finite and not negative|has no gain"):
        adascale_gain(2, variance, gradient_sqr)
