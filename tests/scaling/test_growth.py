"""Batch growth as arithmetic: which steps follow from what was measured."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.scaling.batch.growth import LAG, LEAST_PERIOD, Growth, Stride
from lockstep.scaling.noise import Moments
from lockstep.scaling.rates.rules import adascale_gain

powers = st.sampled_from([1, 2, 4, 8, 16])
numbers = st.floats(-5.0, 5000.0) | st.sampled_from([math.nan, 0.0])
cases = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 9),
        "samples": st.integers(1, 900),
        "epochs": st.integers(1, 4),
        "bounds": st.tuples(powers, powers).map(sorted),
    }
)


def grown(case: dict, told: list[tuple[float, float]], start: int = 0) -> list[Stride]:
    """A run in which the periods tell, in turn, gradient and noise from a list."""
    least, most = case["bounds"]
    given = {name: case[name] for name in ("batch", "samples", "epochs")}
    growth = Growth(**given, least=least, most=most)
    taken = []
    for stride in growth.strides():
        taken.append(stride)
        if stride.ends_period:
            growth.measured.append(Moments(*told[len(growth.measured) % len(told)]))
    # Told all of it in advance, the run is the same from any step on.
    assert list(growth.strides(start)) == taken[start:]
    return taken


@given(cases, st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5), st.integers(0, 50))
def test_every_batch_is_taken_once_and_in_order(case: dict, told: list, start: int):
    _least, most = case["bounds"]
    strides = grown(case, told, start)
    whole, per_epoch = case["samples"] // case["batch"], -(-case["samples"] // case["batch"])
    assert [s.number for s in strides] == list(range(len(strides)))
    assert strides[0].round == 0
    for before, after in pairwise(strides):
        assert after.round == before.round + before.rounds
        assert before.progress <= after.progress <= 1.0
    for stride in strides:
        assert 1 <= stride.rounds <= most
        assert stride.rounds & (stride.rounds - 1) == 0
        assert 1.0 <= stride.gain <= stride.rounds * (1 + 1e-12)
        batch = stride.round % per_epoch
        # All batches of a step are of one epoch and of full size.
        assert stride.rounds == 1 or batch + stride.rounds <= whole
    # The run ends with the step that gains the last of what was planned.
    planned = case["epochs"] * per_epoch
    assert [s.last for s in strides] == [False] * (len(strides) - 1) + [True]
    gained = math.fsum(s.gain for s in strides)
    assert gained >= planned * (1 - 1e-8)
    assert gained - strides[-1].gain < planned
    if most == 1:
        assert len(strides) == planned
        assert [s.progress for s in strides] == [(n + 0.5) / planned for n in range(planned)]
        assert not any(s.looks for s in strides)
    else:
        ends = [-1, *(s.number for s in strides if s.ends_period)]
        assert all(after - before >= LEAST_PERIOD for before, after in pairwise(ends))
        # Some measurements in every period that is over, if any batch is full.
        seen = [any(s.looks for s in strides[a + 1 : b + 1]) for a, b in pairwise(ends)]
        assert all(seen) or not whole
        assert all(s.round % per_epoch < whole for s in strides if s.looks)


@given(cases, st.floats(1e-3, 1e6))
def test_the_batch_is_at_most_the_noise_scale_and_at_least_half_of_it(case: dict, scale: float):
    least, most = case["bounds"]
    growth = Growth(batch=case["batch"], samples=9, epochs=9, least=least, most=most)
    growth.measured.append(Moments(gradient_sqr=2.0, trace=2.0 * scale))
    rounds, moments = growth.chosen(LAG)
    assert least <= rounds <= most
    assert rounds == least or rounds * case["batch"] <= scale * (1 + 1e-12)
    assert rounds == most or 2 * rounds * case["batch"] > scale * (1 - 1e-12)
    assert moments.trace == 2.0 * scale


def test_a_step_gains_what_adascale_says():
    growth = Growth(batch=32, samples=32_000, epochs=3, most=8)
    growth.measured += [Moments(gradient_sqr=1.0, trace=300.0)] * 20
    strides = list(growth.strides())
    ends = [s.number for s in strides if s.ends_period]
    # An epoch of 1,000 rounds has four periods, and these as many steps as they have rounds.
    assert ends[:2] == [249, 499]
    first = strides[500]
    assert first.rounds == 8
    assert first.gain == pytest.approx(adascale_gain(8, variance=300.0 / 32, gradient_sqr=1.0))
    # Never above the noise scale, so at least half of what is taken is gained.
    assert strides[-1].round + strides[-1].rounds < 2 * 3 * 1000
    assert all(s.rounds == 1 for s in strides[:500])


@pytest.mark.parametrize(
    ("told", "rounds"),
    [
        (Moments(math.nan, math.nan), 2),
        (Moments(1.0, 0.0), 2),
        (Moments(0.0, 0.0), 2),
        (Moments(-1.0, 5.0), 8),
        (Moments(0.0, 5.0), 8),
    ],
)
def test_noise_that_cannot_be_measured_leads_to_a_bound(told: Moments, rounds: int):
    growth = Growth(batch=4, samples=4_000, epochs=1, least=2, most=8)
    growth.measured.append(told)
    assert growth.chosen(LAG)[0] == rounds


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"most": 3}, "most=3: give 1, 2, 4, 8"),
        ({"least": 0}, "least=0"),
        ({"least": 4, "most": 2}, "least=4 is more than most=2"),
    ],
)
def test_bounds_that_are_none_are_refused(bounds: dict, text: str):
    with pytest.raises(ValueError, match=text):
        Growth(batch=4, samples=40, epochs=1, **bounds)
