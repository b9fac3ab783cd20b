"""Divide batches that a script cuts by hand, however it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from converting import faults, proven
from lockstep.convert import Options, read_only
from lockstep.errors import ConvertError
from lockstep.source.reading import parse

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
x_train, y_train = torch.randn(65, 4), torch.randn(65, 1)
batch_size, n = 16, 65
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    perm = torch.randperm(n)
    {loop}
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
"""
ROWS = "xb, yb = x_train[idx], y_train[idx]"
RANGE = "for i in range(0, n, batch_size):\n        idx = perm[i:i + batch_size]\n        " + ROWS


def of(loop: str) -> str:
    return read_only(parse(Path("train.py"), SCRIPT.format(loop=loop)), Options()).text


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (RANGE, "idx = perm[i + RANK:i + batch_size:WORLD_SIZE]"),
        (
            "for b in range(n // batch_size):\n"
            f"        idx = perm[b * batch_size:(b + 1) * batch_size]\n        {ROWS}",
            "idx = perm[b * batch_size + RANK:(b + 1) * batch_size:WORLD_SIZE]",
        ),
        (
            "for start in range(0, n, batch_size):\n        end = min(start + batch_size, n)\n"
            f"        idx = perm[start:end]\n        {ROWS}",
            "idx = perm[start + RANK:end:WORLD_SIZE]",
        ),
        (
            "for i in range(0, n, 16):\n        xb, yb = x_train[i:i+16], y_train[i:i+16]",
            "xb, yb = x_train[i + RANK:i+16:WORLD_SIZE], y_train[i + RANK:i+16:WORLD_SIZE]",
        ),
    ],
    ids=["range", "times", "ends", "numbers"],
)
def test_each_process_takes_every_nth_row(loop: str, expected: str):
    assert f"        {expected}\n" in of(loop)


def test_moments_of_a_sequence_are_no_rows():
    loop = "for i in range(0, n, 16):\n        xb = yb = x_train[i:i+16]"
    with pytest.raises(ConvertError, match="could not see"):
        of(loop)


def test_an_uneven_end_trains_as_one_process_does(tmp_path: Path):
    """65 rows: of the last batch, which has one, the second of two processes has none."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(loop=RANGE))
    assert faults(proven(script, steps=8).verdict) == []
