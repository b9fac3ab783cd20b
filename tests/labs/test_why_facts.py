"""Lab 0: growth of compute and models, and a thousand PF/s-days on machines one picks."""

from __future__ import annotations

import json

import pytest

from lockstep.labs.lab0_why import growth, machines
from lockstep.labs.lab0_why.facts import BOXES, DAY, MODELS, SUPERCOMPUTERS, Point, by_tokens
from lockstep.labs.lab0_why.machines import (
    BROCHURE,
    CPU_SERVER,
    GPUS,
    H100,
    PEAK,
    RATES,
    SEEN,
    bill,
)


def model(name: str):
    return next(m for m in MODELS if m.name == name)


def test_compute_grew_300_000_times_from_alexnet_to_alphago_zero():
    first, last = model("AlexNet"), model("AlphaGo Zero")
    assert last.pf_days / first.pf_days == pytest.approx(300_000)
    pair = [Point(m.name, m.year, m.pf_days, m.source) for m in (first, last)]
    # Published as 3.4 months.
    assert growth.trend(pair).doubling == pytest.approx(3.4, abs=0.1)


def test_machines_grew_from_2_pf_in_2009_to_32_in_a_box():
    assert SUPERCOMPUTERS[0].value == pytest.approx(2, abs=0.3)
    assert next(m for m in BOXES if m.name == "8 H100").value == 32


def test_counted_operations_agree_with_what_was_published():
    # GPT-3's own table says 3,640 PF/s-days for 175 billion parameters and 300 billion tokens.
    assert by_tokens(175e9, 300e9) == pytest.approx(model("GPT-3").pf_days, rel=0.01)
    # Llama 3.1 405B: 15.6 trillion tokens, published as 3.8e25 operations.
    assert by_tokens(405e9, 15.6e12) == pytest.approx(3.8e25 / DAY, rel=0.01)


def test_every_fact_has_a_source_and_something_to_say():
    for one in MODELS:
        assert one.source
        assert one.parameters or one.pf_days
    assert all(one.source for one in (*SUPERCOMPUTERS, *BOXES))


@pytest.mark.parametrize("quantity", growth.QUANTITIES)
@pytest.mark.parametrize(
    ("first", "last"), [(2009, 2025), (2012, 2017), (2020, 2018), (2010, 2010)]
)
def test_every_window_of_years_makes_a_picture(quantity: str, first: int, last: int):
    figure = growth.figure(quantity, first, last)
    json.dumps(figure, allow_nan=False)
    shown = sum(len(trace["x"]) for trace in figure["data"] if trace["mode"] == "markers")
    assert shown == sum(map(len, growth.points(quantity).values()))
    assert figure["layout"]["xaxis"]["title"]["text"]
    (window,) = figure["layout"]["shapes"]
    assert [window["x0"], window["x1"]] == [min(first, last), max(first, last) + 1]


def test_another_window_of_years_has_another_doubling_time():
    whole, early = (growth.figure(growth.COMPUTE, *w)["note"] for w in ((2009, 2025), (2012, 2015)))
    assert whole != early
    assert "doubling" in early
    assert "to fit a line" in growth.figure(growth.COMPUTE, 2010, 2010)["note"]


def test_a_thousand_pf_days_take_a_century_on_cpus_and_a_month_on_a_box_of_h100():
    assert bill(CPU_SERVER, 1, 1000, 1.0).days / 365.25 == pytest.approx(100, rel=0.2)
    box = bill(H100, 8, 1000, 1.0, BROCHURE)
    assert box.days == pytest.approx(30, rel=0.1)
    assert 8 * H100.brochure / 1000 == pytest.approx(32, rel=0.02)


def test_honest_numbers_make_the_month_ten():
    # Dense bfloat16, at the utilisation that large trainings reach.
    assert bill(H100, 8, 1000, 0.4, PEAK).days == pytest.approx(316, abs=1)
    assert bill(H100, 8, 1000, 1.0, SEEN).days > 4 * bill(H100, 8, 1000, 1.0, BROCHURE).days


def test_more_machines_are_faster_at_the_same_price():
    one, many = (bill(H100, count, 1000, 0.4) for count in (1, 64))
    assert many.days == pytest.approx(one.days / 64)
    assert many.dollars == pytest.approx(one.dollars)
    assert bill(CPU_SERVER, 1, 1000, 0.4).dollars is None


@pytest.mark.parametrize("rate", RATES)
def test_every_machine_is_in_the_picture(rate: str):
    figure = machines.figure(1000.0, 8, 0.4, rate)
    json.dumps(figure, allow_nan=False)
    (bars,) = figure["data"]
    assert len(bars["x"]) == len(GPUS) + 1
    assert all(days > 0 for days in bars["x"])
    low, high = figure["layout"]["xaxis"]["range"]
    assert low < high


def test_published_rates_are_in_order():
    for kind in GPUS:
        assert kind.rate(SEEN) <= kind.rate(PEAK) <= kind.rate(BROCHURE)
        assert kind.dollars[0] <= kind.dollars[1]
