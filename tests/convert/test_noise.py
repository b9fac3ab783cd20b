"""Random numbers and devices: what all processes have alike, and what each has of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.convert import convert
from lockstep.source.reading import parse

SCRIPT = """\
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.tensor([float(i), {drawn}])


{device}
loader = DataLoader(Pairs(), batch_size=16, shuffle=True)
model = torch.nn.Linear(2, 1).to(gpu)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x in loader:
        {train}
        optimizer.zero_grad()
        model(x.to(gpu)).pow(2).mean().backward()
        optimizer.step()
"""


def of(drawn: str = "1.0", train: str = "pass", device: str = "gpu = 'cpu'") -> str:
    text = SCRIPT.format(drawn=drawn, train=train, device=device)
    return convert(parse(Path("train.py"), text)).text


@pytest.mark.parametrize(
    ("drawn", "train", "seeded"),
    [
        ("random.random()", "pass", ["random.seed(torch.initial_seed())"]),
        ("np.random.rand()", "pass", ["np.random.seed(torch.initial_seed() % 2**32)"]),
        ("1.0", "pass", []),
        # Who draws in the loop decides something for all.
        ("random.random()", "x = x if random.random() < 0.5 else -x", []),
    ],
)
def test_data_sets_draw_on_each_process_for_themselves(drawn: str, train: str, seeded: list[str]):
    lines = [line.strip() for line in of(drawn, train).splitlines()]
    at = lines.index("torch.manual_seed(torch.initial_seed() + RANK)")
    assert lines[at + 1 : at + 1 + len(seeded)] == seeded
    assert sum(
        "initial_seed() % " in line or "(torch.initial_seed())" in line for line in lines
    ) == len(seeded)


@pytest.mark.parametrize(
    ("device", "line"),
    [
        ("gpu = 0", "gpu = LOCAL_RANK"),
        ("gpu = 3", "gpu = 3 if WORLD_SIZE == 1 else LOCAL_RANK"),
    ],
)
def test_the_number_of_a_gpu_becomes_that_of_the_process(device: str, line: str):
    assert f"\n{line}\n" in of(device=device)


def test_a_gpu_that_a_flag_names_is_kept_alone():
    device = "import argparse\nparser = argparse.ArgumentParser()\n"
    device += "parser.add_argument('--gpu', type=int, default=0)\nargs = parser.parse_args()"
    text = SCRIPT.format(drawn="1.0", train="pass", device=device).replace("(gpu)", "(args.gpu)")
    found = convert(parse(Path("train.py"), text)).text
    assert found.count(".to(args.gpu if WORLD_SIZE == 1 else LOCAL_RANK)") == 2
