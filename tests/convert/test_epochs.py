"""Samplers get the epoch where a new pass begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.convert import convert
from lockstep.source.reading import parse

START = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=16, shuffle=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = """\
optimizer.zero_grad()
model(x).pow(2).mean().backward()
optimizer.step()
"""


def told(text: str) -> list[str]:
    """The lines that tell a sampler, and the line below each."""
    step = "".join(f"        {line}\n" for line in STEP.splitlines())
    text = START + text.replace("        STEP\n", step)
    lines = convert(parse(Path("train.py"), text)).text.splitlines()
    at = [i for i, line in enumerate(lines) if "set_epoch(" in line]
    return [line.strip() for i in at for line in lines[i : i + 2]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "for epoch in range(3):\n    for (x,) in loader:\n        STEP\n",
            ["loader.sampler.set_epoch(epoch)", "for (x,) in loader:"],
        ),
        (
            "done = 0\nwhile done < 9:\n    for (x,) in loader:\n        STEP\n    done += 1\n",
            ["loader.sampler.set_epoch(done)", "for (x,) in loader:"],
        ),
        (
            "while True:\n    for (x,) in loader:\n        STEP\n    if x.sum() > 9: break\n",
            ["loader.sampler.set_epoch(loader.sampler.epoch + 1)", "for (x,) in loader:"],
        ),
        (
            "batches = iter(loader)\nfor step in range(9):\n"
            "    try:\n        (x,) = next(batches)\n"
            "    except StopIteration:\n"
            "        batches = iter(loader)\n        (x,) = next(batches)\n"
            "    if True:\n        STEP\n",
            ["loader.sampler.set_epoch(loader.sampler.epoch + 1)", "batches = iter(loader)"],
        ),
        ("if True:\n    for (x,) in loader:\n        STEP\n", []),
    ],
    ids=["for", "while that counts", "while", "iterator", "one pass"],
)
def test_a_sampler_is_told_where_a_pass_begins(text: str, expected: list[str]):
    assert told(text) == expected


def test_a_counter_of_a_class_is_seen_in_all_of_its_methods():
    text = """\
class Trainer:
    def __init__(self):
        self.epoch = 0
        self.loader = loader

    def run(self):
        while self.epoch < 3:
            self.once()
            self.epoch += 1

    def once(self):
      for (x,) in self.loader:
        STEP


Trainer().run()
"""
    expected = ["self.loader.sampler.set_epoch(self.epoch)", "for (x,) in self.loader:"]
    assert told(text) == expected


def test_a_batch_that_is_only_looked_at_is_not_divided():
    """Also where loops around the calls of the function train."""
    text = """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def run(rate):
    data = TensorDataset(torch.randn(64, 4))
    batches, others = DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=64)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
    with torch.no_grad():
        (x,) = next(iter(others))
        return model(x).pow(2).mean().item()


for rate in (0.1, 0.2):
    print(run(rate))
"""
    found = convert(parse(Path("train.py"), text)).text
    assert found.count("DistributedSampler(") == 1
    assert "DataLoader(data, batch_size=64)" in found
