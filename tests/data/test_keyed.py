"""Randomness keyed by sample: it belongs to the key, and is as good as random."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lockstep.data.keyed import EpochKeys, SampleKeys
from lockstep.keys import key

MANY = 200_000


def draw(indices, seed: int = 0, epoch: int = 0, purpose: str = "flip") -> torch.Tensor:
    return SampleKeys(seed, epoch, torch.as_tensor(indices)).uniform(purpose)


def chi_square(numbers: torch.Tensor, cells: int) -> float:
    """Deviations from a uniform distribution, in standard deviations of their sum.

    Under uniformity chi-square has mean `cells - 1` and variance `2 (cells - 1)`.
    """
    counts = torch.bincount((numbers.double() * cells).long(), minlength=cells).double()
    expected = len(numbers) / cells
    chi = ((counts - expected) ** 2 / expected).sum().item()
    return (chi - (cells - 1)) / (2 * (cells - 1)) ** 0.5


def correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    """Correlation in its standard deviations: 1 / sqrt(n) for independent numbers."""
    both = torch.stack([first.double(), second.double()])
    return (torch.corrcoef(both)[0, 1] * len(first) ** 0.5).item()


# Fixed keys, so these are no games of chance: 5 deviations is once in two million.
FAR = 5.0


@given(
    indices=st.lists(st.integers(0, 2**40), min_size=1, max_size=20),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 10_000),
)
def test_a_number_depends_on_its_key_and_not_on_the_batch_around_it(indices, seed, epoch):
    together = draw(indices, seed, epoch)
    alone = torch.cat([draw([index], seed, epoch) for index in indices])
    backwards = draw(indices[::-1], seed, epoch).flip(0)
    assert torch.equal(together, alone)
    assert torch.equal(together, backwards)


def test_drawing_one_purpose_first_does_not_change_another():
    keys = SampleKeys(0, 0, torch.arange(10))
    flips = keys.uniform("flip")
    keys.uniform("crop")
    assert torch.equal(keys.uniform("flip"), flips)


def test_the_global_generator_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = draw(range(10))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(draw(range(10)), first)


@pytest.mark.parametrize("cells", [2, 10, 256, 1000])
@pytest.mark.parametrize("start", [0, 2**31 - MANY // 2, 2**40])
def test_the_numbers_of_consecutive_samples_are_uniform(cells: int, start: int):
    assert abs(chi_square(draw(torch.arange(start, start + MANY)), cells)) < FAR


@pytest.mark.parametrize("stride", [2, 3, 64, 1000, 4096])
def test_the_numbers_of_every_nth_sample_are_uniform(stride: int):
    assert abs(chi_square(draw(torch.arange(0, MANY * stride, stride)), 100)) < FAR


def test_the_numbers_of_one_sample_over_the_epochs_are_uniform():
    numbers = torch.cat([draw([1234], epoch=epoch) for epoch in range(5000)])
    assert abs(chi_square(numbers, 50)) < FAR


def test_the_lowest_bits_are_fair_too():
    lowest = (draw(torch.arange(MANY)) * 2**24).long() & 1
    assert abs(chi_square(lowest.double() / 2, 2)) < FAR


@pytest.mark.parametrize(
    "other",
    [{"seed": 1}, {"epoch": 1}, {"purpose": "crop"}, {"purpose": "flip2"}, {"seed": 2**32}],
    ids=str,
)
def test_seeds_epochs_and_purposes_are_independent(other: dict):
    samples = torch.arange(MANY)
    first, second = draw(samples), draw(samples, **other)
    assert abs(correlation(first, second)) < FAR
    # Independent, not merely uncorrelated: pairs fill the square evenly.
    square = ((first * 16).long() * 16 + (second * 16).long()).double() / 256
    assert abs(chi_square(square, 256)) < FAR


def test_numbers_for_all_epochs_are_uniform_and_no_epochs_own():
    def constant(epoch: int, seed: int = 0) -> torch.Tensor:
        return SampleKeys(seed, epoch, torch.arange(MANY)).uniform("flip", every_epoch=False)

    assert torch.equal(constant(0), constant(7))
    assert abs(chi_square(constant(0), 100)) < FAR
    assert abs(correlation(constant(0), constant(0, seed=1))) < FAR
    assert abs(correlation(constant(0), draw(torch.arange(MANY)))) < FAR


@pytest.mark.parametrize("lag", [1, 2, 7, 64, 1024])
def test_neighbouring_samples_are_independent(lag: int):
    numbers = draw(torch.arange(MANY + lag))
    assert abs(correlation(numbers[:-lag], numbers[lag:])) < FAR


def test_one_epoch_is_not_another_one_shifted():
    first = draw(torch.arange(1000), epoch=0)
    second = draw(torch.arange(1000), epoch=1)
    # A float32 of 24 bits: among 10^6 pairs some 0.06 are equal by chance.
    assert torch.isin(first, second).sum() <= 3


def test_numbers_are_never_one_nor_negative():
    numbers = draw(torch.arange(1 << 21))
    assert 0.0 <= float(numbers.min()) < 1e-5
    assert 1 - 1e-5 < float(numbers.max()) < 1.0
    assert numbers.dtype == torch.float32


def test_large_indices_neither_overflow_nor_repeat():
    indices = 2**40 + torch.arange(1000)
    numbers = draw(indices)
    assert len(numbers.unique()) > 990
    assert not torch.equal(numbers, draw(torch.arange(1000)))
    assert not torch.equal(numbers, draw(indices + 2**32))


@pytest.mark.parametrize("high", [1, 2, 3, 9, 10, 1000, 2**24 - 1, 2**24])
def test_integers_stay_below_their_bound(high: int):
    numbers = SampleKeys(0, 0, torch.arange(MANY)).integers("place", high)
    assert numbers.dtype == torch.int64
    assert int(numbers.min()) >= 0
    assert int(numbers.max()) < high
    if high <= 10:
        assert set(numbers.tolist()) == set(range(high))


@pytest.mark.parametrize("high", [3, 9, 10])
def test_integers_are_uniform(high: int):
    numbers = SampleKeys(0, 0, torch.arange(MANY)).integers("place", high)
    assert abs(chi_square((numbers.double() + 0.5) / high, high)) < FAR


PARTS = st.lists(st.integers(0, 2**63 - 1) | st.text(max_size=5), min_size=1, max_size=4)


@given(PARTS)
def test_a_key_is_a_seed_that_torch_and_numpy_accept(parts):
    number = key(*parts)
    assert 0 <= number < 2**63
    assert number == key(*parts)
    torch.Generator().manual_seed(number)


@given(PARTS, st.integers(0, 2**63 - 1), st.data())
def test_a_key_changes_with_each_of_its_parts(parts, other, data):
    place = data.draw(st.integers(0, len(parts) - 1))
    changed = [*parts[:place], other, *parts[place + 1 :]]
    if isinstance(parts[place], int) and parts[place] != other:
        assert key(*changed) != key(*parts)


def test_the_order_of_the_parts_and_their_number_matter():
    assert len({key(1, 2), key(2, 1), key(1), key(1, 2, 0), key(0, 1, 2)}) == 5


def test_keys_of_small_numbers_are_all_different():
    keys = {
        key(seed, step, shard) for seed in range(10) for step in range(200) for shard in range(8)
    }
    assert len(keys) == 10 * 200 * 8


def test_each_bit_of_a_part_changes_about_half_of_the_key():
    # 63 bits, each changed with probability 1/2: the mean of 64 counts deviates by 0.5.
    changed = [(key(5, 1 << bit) ^ key(5, 0)).bit_count() for bit in range(64)]
    assert abs(sum(changed) / 64 - 31.5) < FAR * 0.5
    assert min(changed) > 10


def test_the_bits_of_keys_are_fair():
    keys = [key(0, number) for number in range(10_000)]
    for bit in range(63):
        ones = sum(k >> bit & 1 for k in keys)
        # Binomial: deviation of sqrt(n) / 2 = 50.
        assert abs(ones - 5000) < FAR * 50


# Keys in memory of the device


@pytest.mark.parametrize("every_epoch", [True, False])
def test_keys_in_memory_draw_what_numbers_draw_in_every_epoch(every_epoch: bool):
    indices = torch.arange(50)
    keys = EpochKeys(seed=7)
    for epoch in (0, 1, 5, 0):
        keys.turn_to(epoch)
        for purpose in ("flip", "crop"):
            held = SampleKeys(7, keys, indices).uniform(purpose, every_epoch)
            assert torch.equal(held, SampleKeys(7, epoch, indices).uniform(purpose, every_epoch))
        assert SampleKeys(7, keys, indices).epoch == epoch


def test_keys_stay_where_a_recording_reads_them():
    keys = EpochKeys(seed=7)
    first = keys.base("flip")
    keys.turn_to(3)
    assert keys.base("flip") is first
