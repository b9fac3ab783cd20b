"""What lab 3 measures on real replicas."""

from __future__ import annotations

import pytest

from lockstep.labs.lab3_scale import runs, throughput


def test_throughput_is_measured_on_real_replicas():
    heard: list[float] = []
    found = throughput.measure(
        lambda share, what: heard.append(share), rounds=2, steps=2, warmup=0.0
    )
    assert found.replicas[:2] == [1, 2]
    assert all(len(rates) == 2 and min(rates) > 0 for rates in [*found.each, *found.shared])
    assert found.ratio(found.each)[0] == [1.0, 1.0]
    assert found.gradient_bytes > 100_000
    assert found.step() > 0
    assert heard == sorted(heard)
    assert len(throughput.rows(found)) == 2 * len(found.replicas)


def test_one_replica_and_several_are_the_same_training():
    found = runs.measure(lambda share, what: None, epochs=1, count=2)
    one, many = found.each()
    assert one.name == "1 replica, batch 32"
    assert many.name == f"{found.replicas} replicas, batch 32"
    assert one.steps == many.steps == [45]
    assert min(one.seconds + many.seconds) > 0
    assert found.identical
    assert 0 <= found.difference < 1
    figure = runs.figure(found, axis="seconds", target=0.0, run0=False)
    assert [trace["name"] for trace in figure["data"]] == ["same batch", "target 0"]
    assert figure["data"][0]["x"] == many.seconds


def test_larger_batches_have_rates_by_the_rules():
    plans = runs.planned(4)
    assert [replicas for replicas, _ in plans.values()] == [1, 4, 4, 4, 4, 4]
    recipes = [recipe for _, recipe in plans.values()]
    assert [recipe.global_batch for recipe in recipes] == [32, 32, 256, 256, 256, 256]
    rates = [recipe.learning_rate / recipes[0].learning_rate for recipe in recipes]
    assert rates == pytest.approx([1, 1, 1, 8**0.5, 8, 8])
    assert recipes[-1].warmup_start == 1 / 8
