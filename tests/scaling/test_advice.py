"""Advice: what it keeps, what it never does, and that its reasons are those of the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.scaling.batch.advice import NEARLY, Measured, advise, candidates
from lockstep.scaling.rates.rules import adam_sqrt_rule


def measured(**changes: Any) -> Measured:
    """A step takes 10 ms and 0.1 ms a sample; an exchange takes 2 ms."""
    base = Measured(
        global_batch=128,
        epochs=10,
        train_samples=50_000,
        learning_rate=0.1,
        warmup=0.0,
        shards=4,
        kind="sgd",
        betas=(0.9, 0.999),
        critical_batch=1000.0,
        seconds={size: 0.01 + 1e-4 * size for size in (8, 64, 512, 4096)},
        exchange={2: 0.002, 4: 0.003},
        hides=False,
    )
    return replace(base, **changes)


situations = st.builds(
    measured,
    global_batch=st.sampled_from([2, 32, 100, 128, 1024]),
    critical_batch=st.floats(1, 1e5),
    kind=st.sampled_from(["sgd", "adam", "other"]),
    hides=st.booleans(),
    epochs=st.integers(1, 100),
    exchange=st.sampled_from([{2: 1e-5}, {2: 0.5}, {2: 0.01, 4: 0.02}]),
)
counts = st.sampled_from([1, 2, 4, 8, 64, 1024])


@given(situations, counts)
def test_advice_can_be_followed(found: Measured, replicas: int):
    advice = advise(found, replicas)
    assert advice.global_batch >= replicas
    assert advice.global_batch % advice.shards == 0
    assert advice.shards >= replicas
    assert advice.micro_batch <= found.largest
    assert advice.micro_batch * advice.accumulation * replicas >= advice.global_batch
    assert advice.epochs >= found.epochs
    assert advice.rate_factor >= 1.0
    assert 0.0 <= advice.warmup_start <= 1.0
    assert advice.why


@given(situations, counts)
def test_the_batch_is_nearly_the_fastest_and_none_smaller_is(found: Measured, replicas: int):
    advice = advise(found, replicas)
    times = {batch: found.seconds_in_all(replicas, batch) for batch in candidates(found, replicas)}
    assert advice.seconds == times[advice.global_batch]
    assert advice.seconds <= NEARLY * min(times.values())
    for batch, seconds in times.items():
        assert batch >= advice.global_batch or seconds > NEARLY * min(times.values())


@given(situations)
def test_one_replica_is_not_made_slower(found: Measured):
    advice = advise(found, 1)
    assert advice.speed_up >= 1.0 / NEARLY - 1e-9


def test_far_below_the_critical_batch_steps_and_rate_go_with_the_replicas():
    advice = advise(measured(critical_batch=1e6, exchange={8: 0.0}), 8)
    scale = advice.global_batch / 128
    assert scale >= 8
    assert advice.rule == "linear"
    assert advice.rate_factor == pytest.approx(scale, rel=0.1)
    assert advice.epochs == 11  # a percent more samples, in whole epochs


def test_past_the_critical_batch_the_batch_stays():
    advice = advise(measured(critical_batch=10.0), 4)
    assert advice.global_batch == 128
    assert advice.rule == "unchanged"
    assert advice.learning_rate == 0.1
    assert advice.warmup_start == 0.0
    assert advice.why.startswith("past 128 samples in a step another doubling would save 4%")


def test_a_raised_rate_is_warmed_up_from_the_old_one():
    advice = advise(measured(), 4)
    assert advice.rate_factor > 1.0
    assert advice.warmup_start * advice.learning_rate == pytest.approx(0.1)
    assert advice.warmup == 0.5  # a twentieth of ten epochs


def test_sgd_s_rate_grows_as_its_steps_shrink():
    advice = advise(measured(), 4)
    gain = (1 + 1000 / 128) / (1 + 1000 / advice.global_batch)
    assert advice.rate_factor == pytest.approx(gain)


def test_adam_s_rate_grows_by_the_root_and_its_betas_with_it():
    advice = advise(measured(kind="adam"), 4)
    scale = advice.global_batch / 128
    assert scale > 1
    assert advice.rate_factor == pytest.approx(scale**0.5)
    assert advice.betas == adam_sqrt_rule(scale).betas


def test_adam_s_batch_ends_where_its_betas_do():
    advice = advise(measured(kind="adam", critical_batch=1e6, exchange={8: 0.0}), 8)
    assert advice.global_batch == 8 * 128
    assert "Adam's betas allow no more than 1,024" in advice.why


def test_the_advice_names_a_batch_that_is_too_large_for_adams_betas():
    advice = advise(measured(kind="adam", global_batch=2), 64)
    assert "too much for Adam's betas" in advice.rule
    assert advice.betas is None


def test_a_slow_exchange_asks_for_larger_batches_and_is_named():
    quick, slow = (advise(measured(exchange={4: t}), 4) for t in (1e-5, 0.5))
    assert slow.global_batch > quick.global_batch
    assert slow.speed_up < quick.speed_up


def test_an_exchange_beside_backward_costs_what_is_left_of_it():
    base = measured(exchange={2: 0.004})
    assert base.step(2, 128) == pytest.approx(0.0164 + 0.004)
    assert replace(base, hides=True).step(2, 128) == pytest.approx(0.0164)
    long = replace(base, hides=True, exchange={2: 0.1})
    assert long.step(2, 128) == pytest.approx(0.0164 + 0.1 - 2 / 3 * 0.0164)


def test_more_replicas_than_were_measured_exchange_as_a_ring():
    found = measured(exchange={2: 0.002})
    assert found.exchanged(1) == 0.0
    assert found.exchanged(8) == pytest.approx(0.002 * (7 / 8) / (1 / 2))
    assert not advise(found, 8).measured
    assert advise(found, 2).measured


def test_a_batch_that_does_not_fit_is_accumulated():
    found = measured(seconds={8: 0.01, 32: 0.013})
    advice = advise(found, 1)
    assert advice.accumulation == -(-advice.global_batch // 32)
    assert found.compute(128) == pytest.approx(4 * 0.013)


def test_a_batch_of_two_on_many_replicas_grows_until_each_has_a_sample():
    advice = advise(measured(global_batch=2, critical_batch=1.0, shards=2), 64)
    assert advice.global_batch == 64
    assert "one sample" in advice.why


def test_a_batch_that_is_given_gets_the_rate_and_the_epochs_that_go_with_it():
    advice = advise(measured(), 1, batch=1024)
    assert advice.global_batch == 1024
    assert advice.rate_factor == pytest.approx((1 + 1000 / 128) / (1 + 1000 / 1024))
    assert advice.epochs == 18  # eight times the batch, 4.46 times fewer steps


def test_a_batch_is_never_larger_than_the_data():
    found = measured(critical_batch=1e9, train_samples=1000)
    assert max(candidates(found, 1)) <= 1000
