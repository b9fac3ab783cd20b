"""Gradients over a link: published numbers, and what hides behind backward."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.predict.all_reduce_time import all_reduce_seconds, exchanges


def test_a_gigabyte_takes_as_long_as_published_on_eight_h200():
    # nccl-tests: busbw 473 GB/s means 2 * 7/8 * 1 GB in 3.7 ms.
    assert all_reduce_seconds(1e9, 8, 0.0, 473e9) == pytest.approx(3.7e-3, rel=1e-3)


@given(st.floats(0, 1e10), st.integers(2, 1000), st.floats(0, 1e-3), st.floats(1e6, 1e12))
def test_more_replicas_take_at_most_twice_as_long_as_two(size, replicas, latency, bandwidth):
    two = all_reduce_seconds(size, 2, latency, bandwidth)
    many = all_reduce_seconds(size, replicas, latency, bandwidth)
    assert two <= many * (1 + 1e-12)
    assert many <= 2 * two * (1 + 1e-12)


def test_one_replica_sends_nothing():
    assert all_reduce_seconds(1e9, 1, 1.0, 1.0) == 0.0


times = st.lists(st.floats(0, 100), min_size=3, max_size=3).map(sorted)


@given(st.lists(times, min_size=1, max_size=5), st.lists(st.floats(0, 10), min_size=3, max_size=3))
def test_buckets_wait_for_the_slowest_and_for_each_other(ready, seconds):
    spans = exchanges(ready, seconds)
    for bucket, span in enumerate(spans):
        assert span.start >= max(one[bucket] for one in ready)
        assert span.end == span.start + seconds[bucket]
        assert bucket == 0 or span.start >= spans[bucket - 1].end


def test_an_exchange_during_backward_costs_nothing():
    hidden = exchanges([[1.0, 2.0, 3.0]], [0.5, 0.5, 0.25])
    assert hidden[-1].end == 3.25
    shown = exchanges([[1.0, 2.0, 3.0]], [5.0, 5.0, 5.0])
    assert shown[-1].end == 16.0
