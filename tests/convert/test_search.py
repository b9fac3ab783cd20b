"""How the numbers that each process reads make the numbers that one process reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.convert.search import _kind

Read = list[tuple[str, Any, int]]


def read(*values: Any, how: str = "item", rows: int = 4) -> Read:
    return [(how, value, rows) for value in values]


@given(
    st.lists(st.lists(st.floats(0.1, 10), min_size=2, max_size=2), min_size=1, max_size=9),
)
def test_a_mean_and_a_sum_are_told_apart(pairs: list[list[float]]) -> None:
    ours = [read(*(pair[rank] for pair in pairs)) for rank in range(2)]
    alike = all(abs(a - b) <= 1e-12 * abs(a) for a, b in pairs)
    assert _kind(read(*(sum(pair) for pair in pairs)), ours) == "sum"
    assert _kind(read(*(sum(pair) / 2 for pair in pairs)), ours) == ("same" if alike else "mean")


def test_a_mean_counts_by_the_rows_of_each_process() -> None:
    ours = [read(1.0, rows=3), read(2.0, rows=1)]
    assert _kind(read(1.25), ours) == "mean"
    assert _kind(read(1.5), ours) == ""


def test_rows_in_another_order_are_the_same_rows() -> None:
    assert _kind(read([5, 1, 4, 1]), [read([1, 1]), read([4, 5])]) == "bag"
    assert _kind(read([5, 1, 4, 2]), [read([1, 1]), read([4, 5])]) == ""


def test_numbers_that_are_almost_the_same_are_means() -> None:
    assert _kind(read(0.5001), [read(0.5), read(0.5002)]) == "mean"


def test_predictions_of_a_batch_are_rows_in_its_order() -> None:
    assert _kind(read([1, 2, 3, 4]), [read([1, 3]), read([2, 4])]) == "rows"


def test_a_number_of_an_evaluation_that_all_compute_is_not_added_up() -> None:
    assert _kind(read(6, 10), [read(4, 10), read(2, 10)]) == "sum, shared"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (read(3.0), [read(1.0), read(1.0)]),  # a norm, a maximum
        (read(True, how="__bool__"), [read(False, how="__bool__"), read(True, how="__bool__")]),
    ],
)
def test_what_no_rule_explains_stays_open(theirs: Read, ours: list[Read]) -> None:
    assert _kind(theirs, ours) == ""
