"""Receipts: a hash of each step's gradient, which any parameter may stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from lockstep.engine.group import Group
from lockstep.engine.program.receipts import EVERY, FEW, SMALL, Receipts
from lockstep.engine.run.receipts import Receipt, read
from lockstep.world import World

TABLE = torch.ones(2, 4, dtype=torch.float64)


def written(folder: Path, *steps: list[Tensor | None]) -> list[Receipt]:
    """The receipts of steps with these gradients, from step 1 on."""
    receipts = Receipts(folder / "receipts.bin", Group(World()))
    for number, gradients in enumerate(steps, 1):
        receipts.note(number, number, gradients, TABLE)
        for gradient in gradients:
            if gradient is not None:
                # As clipping does.
                gradient.mul_(2.0)
    receipts.settle()
    found = read(folder / "receipts.bin")
    (folder / "receipts.bin").unlink()
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor(1.5),  # a parameter without dimensions
        lambda: torch.arange(12.0).view(3, 4),
        lambda: torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        lambda: torch.ones(6, dtype=torch.complex64),
        lambda: torch.arange(6, dtype=torch.bfloat16),
    ],
    ids=["scalar", "matrix", "channels_last", "complex", "bfloat16"],
)
def test_a_gradient_of_any_shape_has_a_hash_of_its_bits(tmp_path: Path, make):
    other = make()
    other[(-1,) * other.dim()] += 2
    first, same, changed = written(tmp_path, [make()], [make()], [other])
    assert first.gradient == same.gradient != changed.gradient
    assert [r.call for r in (first, same, changed)] == [1, 2, 3]
    assert first.loss == 1.0


def test_an_empty_parameter_and_one_without_gradient_are_no_obstacle(tmp_path: Path):
    steps = [[torch.empty(0, 3), None, torch.ones(2)] for _ in range(4)]
    found = written(tmp_path, *steps)
    assert len(found) == 4
    assert {receipt.gradient for receipt in found[0::2]} != {r.gradient for r in found[1::2]}


def test_small_gradients_take_turns_and_large_ones_are_hashed_whole_now_and_then(tmp_path: Path):
    def step(large: float) -> list[Tensor | None]:
        return [torch.ones(3), torch.full((SMALL + 1,), large)]

    one, other = (written(tmp_path, *[step(x)] * EVERY) for x in (1.0, 2.0))
    differing = [a.call for a, b in zip(one, other, strict=True) if a.gradient != b.gradient]
    assert differing == [EVERY]


def test_many_gradients_are_hashed_in_every_step(tmp_path: Path):
    large = [torch.zeros(FEW), torch.ones(FEW)]
    first, other = (written(tmp_path, [torch.ones(3), x])[0].gradient for x in large)
    assert first != other
