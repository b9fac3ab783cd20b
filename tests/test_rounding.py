"""One rounding: the next number, up or down."""

from __future__ import annotations

import pytest
import torch

from lockstep.rounding import moved_by_one_rounding


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_of_two_moves_to_the_next_number(dtype: torch.dtype):
    values = torch.tensor([1.0, -4.0, 0.25], dtype=dtype)
    eps = torch.finfo(dtype).eps
    moved = moved_by_one_rounding(values, torch.ones_like(values), eps)
    # From -4 upwards is towards zero, where numbers are twice as dense.
    steps = torch.tensor([1, 2, 1])
    for _ in range(2):
        values = torch.where(steps > 0, torch.nextafter(values, values + 1), values)
        steps -= 1
    assert torch.equal(moved, values)


def test_signs_decide_the_direction_and_a_small_value_moves_as_far_as_the_least():
    values = torch.tensor([2.0, 2.0, 0.0, -1e-9])
    signs = torch.tensor([1, -1, 1, -1])
    moved = moved_by_one_rounding(values, signs, 2.0**-10, least=1.0)
    assert torch.equal(moved - values, torch.tensor([2.0, -2.0, 1.0, -1.0]) * 2.0**-10)


def test_without_a_least_zero_stays():
    zero = torch.zeros(3)
    assert torch.equal(moved_by_one_rounding(zero, torch.ones(3), 2.0**-8), zero)
