"""The link between replicas: measured, agreed on, and the bucket that fits it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.engine.exchange.link import (
    LARGE,
    LEAST,
    MOST,
    SMALL,
    Link,
    best_bucket,
    from_times,
    measure,
)
from lockstep.engine.group import Group
from replicas import on_replicas

links = st.builds(Link, latency=st.floats(1e-6, 1.0), bandwidth=st.floats(1e5, 1e12))
totals = st.floats(1.0, 1e12)


def unhidden(link: Link, total: float, bucket: float) -> float:
    return link.latency * total / bucket + bucket / link.bandwidth


@given(link=links, total=totals)
def test_a_bucket_is_within_its_bounds_and_never_more_than_the_model(link: Link, total: float):
    bucket = best_bucket(link, total)
    assert min(LEAST, total) <= bucket <= min(MOST, total)


@given(link=links, total=totals, share=st.floats(0.0, 1.0))
def test_no_other_bucket_within_the_bounds_leaves_less_to_wait_for(link, total, share):
    low, high = min(LEAST, total), min(MOST, total)
    other = low * (high / low) ** share
    best = unhidden(link, total, best_bucket(link, total))
    # Both sides are a few operations in double precision.
    assert best <= unhidden(link, total, other) * (1 + 1e-12)


@given(link=links, total=totals, factor=st.floats(1.0, 1e3))
def test_buckets_grow_with_latency_with_bandwidth_and_with_the_model(link, total, factor):
    bucket = best_bucket(link, total)
    assert best_bucket(link._replace(latency=link.latency * factor), total) >= bucket
    assert best_bucket(link._replace(bandwidth=link.bandwidth * factor), total) >= bucket
    assert best_bucket(link, total * factor) >= bucket


@given(small=st.floats(1e-7, 10.0), large=st.floats(1e-7, 10.0))
def test_any_times_give_a_link(small: float, large: float):
    link = from_times(small, large)
    assert 0 < link.latency <= small
    assert 0 < link.bandwidth < math.inf
    # The large exchange takes the time that was measured.
    assert link.latency + (LARGE - SMALL) / link.bandwidth == pytest.approx(large, rel=1e-9)


@pytest.mark.parametrize("replicas", [2, 4])
def test_all_replicas_take_the_same_numbers(replicas: int):
    def work(group: Group) -> Link:
        return measure(group)

    links = on_replicas(replicas, work)
    assert len(set(links)) == 1
    assert links[0].latency > 0
    assert links[0].bandwidth > 0
