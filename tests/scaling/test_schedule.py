"""Schedules: factors between nothing and all, without jumps, with the ends that they promise."""

from __future__ import annotations

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.scaling.rates.schedules import (
    constant,
    cosine,
    followed,
    linear,
    one_cycle,
    polynomial,
    step,
    triangle,
    warmed,
)

progress = st.floats(0, 1)
share = st.floats(0, 1)
schedules = st.one_of(
    st.just(constant),
    st.builds(lambda floor: partial(cosine, floor=floor), share),
    st.builds(lambda floor: partial(linear, floor=floor), share),
    st.builds(
        lambda power, floor: partial(polynomial, power=power, floor=floor), st.floats(0, 9), share
    ),
    st.builds(lambda at, factor: partial(step, at=at, factor=factor), st.lists(share), share),
)


@given(schedules, progress)
def test_factors_lie_between_nothing_and_all(schedule, p):
    assert 0.0 <= schedule(p) <= 1.0


@given(schedules, share, share, progress)
def test_a_warmup_keeps_factors_between_nothing_and_all(schedule, length, start, p):
    assert 0.0 <= warmed(schedule, length, start)(p) <= 1.0


@given(schedules, progress, progress)
def test_schedules_never_rise(schedule, p, q):
    # Rounding of numbers up to 1, a few operations each.
    assert schedule(max(p, q)) <= schedule(min(p, q)) + 4 * 2**-53


@given(share)
def test_cosine_and_line_go_from_one_to_their_floor(floor):
    for schedule in (cosine, linear):
        assert schedule(0.0, floor) == pytest.approx(1.0, abs=2**-53)
        assert schedule(1.0, floor) == pytest.approx(floor, abs=2**-53)
        assert schedule(0.5, floor) == pytest.approx((1 + floor) / 2, abs=2**-52)


@given(st.floats(0.001, 1), progress, st.floats(0, 0.01))
def test_a_warmed_cosine_has_no_jump(length, p, distance):
    curve = warmed(cosine, length)
    q = min(p + distance, 1.0)
    # The steepest rise of the ramp and the steepest fall of the cosine, both factors at most 1.
    steepest = 1 / length + math.pi / 2
    assert abs(curve(q) - curve(p)) <= steepest * (q - p) + 1e-12


@given(schedules, st.floats(0.001, 1), share)
def test_a_warmup_starts_at_its_start_and_ends_in_the_schedule(schedule, length, start):
    curve = warmed(schedule, length, start)
    assert curve(0.0) == start * schedule(0.0)
    assert curve(length) == schedule(length)
    assert curve(1.0) == schedule(1.0)


@given(schedules, progress)
def test_no_warmup_changes_nothing(schedule, p):
    assert warmed(schedule, 0.0)(p) == schedule(p)


@given(st.floats(0.001, 1), st.floats(0, 0.999))
def test_a_warmup_rises_in_a_straight_line(length, part):
    # A quotient and a product: two roundings.
    assert warmed(constant, length)(part * length) == pytest.approx(part, abs=2**-51)


@given(progress, share, share, share)
def test_a_triangle_lies_between_its_ends_and_one(p, peak, start, floor):
    # Rounding of numbers up to 1, a few operations each.
    assert min(start, floor) - 2**-51 <= triangle(p, peak, start, floor) <= 1 + 2**-51


@given(st.floats(0.001, 0.999), share, share)
def test_a_triangle_has_its_ends_its_peak_and_straight_lines_between(peak, start, floor):
    def curve(p: float) -> float:
        return triangle(p, peak, start, floor)

    assert (curve(0.0), curve(1.0)) == (start, floor)
    # Rounding of numbers up to 1, a few operations each.
    assert curve(peak) == pytest.approx(1.0, abs=2**-51)
    assert curve(peak / 2) == pytest.approx((start + 1) / 2, abs=2**-50)
    assert curve((1 + peak) / 2) == pytest.approx((1 + floor) / 2, abs=1e-12)


@given(st.floats(0.1, 9), share)
def test_a_polynomial_is_a_power_of_the_line(power, floor):
    assert (polynomial(0.0, power, floor), polynomial(1.0, power, floor)) == (1.0, floor)
    assert polynomial(0.3, power) == pytest.approx(0.7**power, rel=1e-14)
    assert polynomial(1.0 + 1e-12, 0.5) == 0.0


@given(progress, st.floats(0.001, 0.999), share, share)
def test_one_cycle_rises_to_its_peak_and_falls(p, peak, start, floor):
    # Rounding of numbers up to 1, a few operations each.
    def curve(q: float) -> float:
        return one_cycle(q, peak, start, floor)

    assert curve(0.0) == pytest.approx(start, abs=2**-51)
    assert curve(peak) == pytest.approx(1.0, abs=2**-51)
    assert curve(1.0) == pytest.approx(floor, abs=2**-51)
    low, high = sorted((p * peak, peak))
    assert curve(low) <= curve(high) + 2**-50
    low, high = sorted((peak, peak + p * (1 - peak)))
    assert curve(high) <= curve(low) + 2**-50


def test_one_cycle_may_only_fall_or_only_rise():
    assert one_cycle(0.0, peak=0.0) == 1.0
    assert one_cycle(1.0, peak=1.0) == 1.0


@given(schedules, schedules, st.floats(0.001, 0.999), st.floats(0, 0.999))
def test_one_schedule_follows_another_and_each_passes_whole(first, second, at, part):
    both = followed(first, second, at)
    assert both(0.0) == first(0.0)
    assert both(at) == second(0.0)
    assert both(1.0) == second(1.0)
    if part * at < at:
        assert both(part * at) == first(part * at / at)


@pytest.mark.parametrize("at", [0.0, 1.0, -1.0, math.nan])
def test_a_schedule_that_would_have_no_time_is_refused(at):
    with pytest.raises(ValueError, match="a share of the run between 0 and 1"):
        followed(constant, linear, at)


def test_a_gradual_warmup_starts_at_the_rate_of_one_replica_of_the_world():
    # Two nodes of four: the rate was raised eight times, so it starts at an eighth.
    curve = warmed(constant, share=0.1, start=1 / 8)
    assert [round(curve(p), 6) for p in (0.0, 0.05, 0.1)] == [0.125, 0.5625, 1.0]


def test_a_triangle_may_only_rise_or_only_fall():
    assert [triangle(p, peak=0.0, floor=0.2) for p in (0.0, 1.0)] == [1.0, 0.2]
    assert [triangle(p, peak=1.0, start=0.3) for p in (0.0, 1.0)] == [0.3, 1.0]


def test_steps_multiply_at_their_points_and_rest_between_them():
    curve = partial(step, at=(0.5, 0.75), factor=0.1)
    assert [curve(p) for p in (0.0, 0.49, 0.5, 0.74)] == [1.0, 1.0, 0.1, 0.1]
    assert curve(0.75) == curve(1.0) == pytest.approx(0.01)
    assert step(0.9, at=()) == 1.0
