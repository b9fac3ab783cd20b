"""The ranks of a proof together draw the random numbers of the original."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lockstep.convert.verify.in_process.samples import Passes
from lockstep.convert.verify.in_process.torch_draws import Draws


def drawn(ranks: int, rank: int, batch: int, kept: dict[str, list]) -> torch.Tensor:
    """An order of a rank's samples; the original is rank 0 of 1 and writes what it drew."""
    samples = list(range(rank, batch, ranks))
    now = SimpleNamespace(
        begun=True,
        fetching=False,
        size=ranks,
        rank=rank,
        samples=samples,
        recorder=SimpleNamespace(worker=None),
        kept=SimpleNamespace(writes=not kept, draws=kept),
        neutral=lambda _: None,
        name=lambda kind: f"1.{kind}.1",
    )
    draws = Draws(now)
    return draws.instead(torch.randperm, draws.randperm)(len(samples))


@given(st.sampled_from([2, 3, 4, 6]), st.integers(2, 12))
def test_partners_in_a_batch_are_the_same_on_any_number_of_ranks(ranks: int, each: int):
    batch, kept = ranks * each, {}
    original = drawn(1, 0, batch, kept)
    assert sorted(original.tolist()) == list(range(batch))
    for rank in range(ranks):
        mine = torch.arange(rank, batch, ranks)
        assert mine[drawn(ranks, rank, batch, kept)].tolist() == original[mine].tolist()


def test_partners_are_mixed():
    assert drawn(1, 0, 48, {}).tolist() != list(range(48))


@pytest.mark.parametrize(
    ("marks", "turns"),
    [
        ([0, 1, 2], [0, 1, 2]),  # epochs that are told, or backwards between passes
        ([0, 0, 0], [0, 0, 0]),  # nobody told the sampler
        ([5, 6, 5, 6], [0, 1, 2, 3]),  # two trainings that count from the same number
    ],
)
def test_a_pass_begins_where_its_mark_has_changed(marks: list[int], turns: list[int]):
    passes = Passes(marks[0])
    assert [passes.turn(mark) for mark in marks] == turns
